//! The reports of forwarding and of shared addresses, as the runtime API tells them.

use butler_lb::admin::{
    BackendState, BackendStatus, BfdStatus, ListenerStatus, TrackStatus, VipState, VipStatus,
};
use butler_lb::{forward, vip};

pub(super) fn listeners(status: forward::Status) -> Vec<ListenerStatus> {
    status.listeners.into_iter().map(listener).collect()
}

fn listener(report: forward::ListenerReport) -> ListenerStatus {
    let totals = report.totals;
    let backends: Vec<BackendStatus> = report.backends.into_iter().map(backend).collect();
    ListenerStatus {
        name: report.name,
        bind: report.addresses,
        summary: report.summary,
        healthy: backends.iter().filter(|backend| backend.state == BackendState::Up).count(),
        connections: report.connections.into(),
        queued: report.waiting as u64,
        accepted: totals.accepted,
        denied: totals.not_allowed + totals.bad_header,
        refused: totals.no_backend + totals.no_room,
        retried: totals.retried,
        shed: totals.shed,
        bytes_in: totals.from_clients,
        bytes_out: totals.from_backends,
        backends,
    }
}

fn backend(report: forward::BackendReport) -> BackendStatus {
    BackendStatus {
        name: report.name,
        address: report.address,
        state: match report.state {
            // Its first check was bad already: it is down like any other.
            "new" if report.reason.is_some() => BackendState::Down,
            "new" => BackendState::New,
            "up" => BackendState::Up,
            "ejected" => BackendState::Ejected,
            "draining" => BackendState::Draining,
            "removed" => BackendState::Removed,
            _ => BackendState::Down,
        },
        check: report.reason.unwrap_or_default(),
        connections: report.connections.into(),
        opened: report.opened,
        failed: report.failed,
    }
}

pub(super) fn vips(status: Vec<vip::VipStatus>) -> Vec<VipStatus> {
    status.into_iter().map(one_vip).collect()
}

fn one_vip(status: vip::VipStatus) -> VipStatus {
    VipStatus {
        name: status.name,
        addresses: status.addresses,
        interface: status.interface,
        state: match status.role {
            vip::Role::Init => VipState::Init,
            vip::Role::Backup => VipState::Backup,
            vip::Role::Master => VipState::Master,
            vip::Role::Fault => VipState::Unfit,
            vip::Role::Resigning => VipState::Resigning,
            vip::Role::Stopped => VipState::Stopped,
        },
        priority: status.priority,
        holder: status.holder,
        transitions: status.transitions,
        rejected: status.rejected,
        clock_refused: status.clock_refused,
        replayed: status.replayed,
        wrong_key: status.wrong_key,
        foreign_claims: status.foreign_claims,
        tracks: status
            .tracks
            .into_iter()
            .map(|track| TrackStatus { check: track.check, good: track.good })
            .collect(),
        bfd: status.bfd.into_iter().map(|session| BfdStatus { peer: session.peer, up: session.up }).collect(),
        problem: status.problem,
    }
}
