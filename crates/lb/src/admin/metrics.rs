//! The status as numbers for Prometheus, in its text format.

use super::status::{BackendState, BackendStatus, ListenerStatus, Status, VipState, VipStatus};
use std::fmt::Write as _;

/// A metric: name without the prefix, type, what it says.
type About = (&'static str, &'static str, &'static str);

/// A metric of something, and where its value is.
type Metric<T> = (About, fn(&T) -> u64);

const LISTENER: [Metric<ListenerStatus>; 10] = [
    (("listener_connections", "gauge", "Connections that are open."), |l| l.connections),
    (("listener_queued", "gauge", "Connections that wait for room."), |l| l.queued),
    (("listener_healthy_backends", "gauge", "Backends that are healthy."), |l| l.healthy as u64),
    (("listener_backends", "gauge", "Backends."), |l| {
        l.backends.iter().filter(|b| b.state != BackendState::Removed).count() as u64
    }),
    (("listener_accepted_total", "counter", "Connections that were taken."), |l| l.accepted),
    (("listener_denied_total", "counter", "Connections of clients that are not allowed."), |l| l.denied),
    (
        ("listener_refused_total", "counter", "Connections that no backend took, or that found no room."),
        |l| l.refused,
    ),
    (("listener_retried_total", "counter", "Connections that a second backend took."), |l| l.retried),
    (("listener_shed_total", "counter", "Connections that were closed so that shares get even."), |l| l.shed),
    (("listener_received_bytes_total", "counter", "Bytes from clients."), |l| l.bytes_in),
];

const SENT: About = ("listener_sent_bytes_total", "counter", "Bytes to clients.");

const VIP: [Metric<VipStatus>; 8] = [
    (("vip_holder", "gauge", "1 on the machine that holds the address."), |v| {
        u64::from(matches!(v.state, VipState::Master | VipState::Resigning))
    }),
    (("vip_priority", "gauge", "Priority in force; 0: unfit."), |v| u64::from(v.priority)),
    (("vip_transitions_total", "counter", "Times that the address was taken or given up."), |v| {
        v.transitions
    }),
    (("vip_rejected_adverts_total", "counter", "Adverts that were thrown away."), |v| v.rejected),
    (
        (
            "vip_clock_refused_adverts_total",
            "counter",
            "Adverts that were thrown away because the sender's clock and ours are too far apart.",
        ),
        |v| v.clock_refused,
    ),
    (
        (
            "vip_replayed_adverts_total",
            "counter",
            "Adverts that were thrown away because they, or later ones, were heard before.",
        ),
        |v| v.replayed,
    ),
    (
        (
            "vip_wrong_key_adverts_total",
            "counter",
            "Adverts that were thrown away because they are not signed, or not with a key of ours.",
        ),
        |v| v.wrong_key,
    ),
    (
        (
            "vip_foreign_claims_total",
            "counter",
            "Times that another machine claimed an address that this one held.",
        ),
        |v| v.foreign_claims,
    ),
];

/// All metrics.
pub fn metrics(status: &Status) -> String {
    let mut page = Page { text: String::new() };
    page.about(("build_info", "gauge", "Always 1; the version is a label."));
    page.sample("build_info", &[("version", &status.version)], 1);
    for (about, value) in [
        (("uptime_seconds", "gauge", "Seconds since the start."), status.uptime),
        (
            ("config_age_seconds", "gauge", "Seconds since the configuration in force was read."),
            status.config_age,
        ),
        (("failed_reloads", "gauge", "Reloads that were refused since then."), status.failed_reloads),
        (("threads", "gauge", "Threads that forward."), status.threads.all as u64),
        (("threads_used", "gauge", "Threads that new connections go to."), status.threads.used as u64),
    ] {
        page.about(about);
        page.sample(about.0, &[], value);
    }
    page.listeners(status);
    page.backends(status);
    page.vips(status);
    page.text
}

struct Page {
    text: String,
}

impl Page {
    fn about(&mut self, (name, kind, help): About) {
        // Writing to a String can't fail.
        let _ = write!(self.text, "# HELP butler_lb_{name} {help}\n# TYPE butler_lb_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> =
            labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "butler_lb_{name}{labels} {value}");
    }

    fn listeners(&mut self, status: &Status) {
        if status.listeners.is_empty() {
            return;
        }
        let sent: Metric<ListenerStatus> = (SENT, |l| l.bytes_out);
        for (about, value) in LISTENER.iter().chain([&sent]) {
            self.about(*about);
            for listener in &status.listeners {
                self.sample(about.0, &[("listener", &listener.name)], value(listener));
            }
        }
    }

    fn backends(&mut self, status: &Status) {
        if status.listeners.is_empty() {
            return;
        }
        let all: [Metric<BackendStatus>; 5] = [
            (("backend_up", "gauge", "1 when it gets connections."), |b| {
                u64::from(b.state == BackendState::Up)
            }),
            (("backend_draining", "gauge", "1 when it is drained."), |b| {
                u64::from(b.state == BackendState::Draining)
            }),
            (("backend_connections", "gauge", "Connections that are open."), |b| b.connections),
            (("backend_opened_total", "counter", "Connections that were opened."), |b| b.opened),
            (("backend_failed_total", "counter", "Connections that failed."), |b| b.failed),
        ];
        for (about, value) in all {
            self.about(about);
            for listener in &status.listeners {
                for backend in by_name(&listener.backends) {
                    let labels = [("listener", &*listener.name), ("backend", &*backend.name)];
                    self.sample(about.0, &labels, value(&backend));
                }
            }
        }
    }

    fn vips(&mut self, status: &Status) {
        if status.vips.is_empty() {
            return;
        }
        for (about, value) in VIP {
            self.about(about);
            for vip in &status.vips {
                self.sample(about.0, &[("vip", &vip.name)], value(vip));
            }
        }
        self.about(("vip_track_good", "gauge", "1 when what is looked at is so."));
        for vip in &status.vips {
            for track in &vip.tracks {
                let labels = [("vip", &*vip.name), ("check", &*track.check)];
                self.sample("vip_track_good", &labels, u64::from(track.good));
            }
        }
        self.about(("vip_bfd_up", "gauge", "1 when both sides hear each other."));
        for vip in &status.vips {
            for session in &vip.bfd {
                let peer = session.peer.to_string();
                self.sample("vip_bfd_up", &[("vip", &vip.name), ("peer", &peer)], u64::from(session.up));
            }
        }
    }
}

/// Each name once. What a reload has taken out, and that still has connections, is counted with what has its name now.
fn by_name(backends: &[BackendStatus]) -> Vec<BackendStatus> {
    let mut all: Vec<BackendStatus> = Vec::new();
    for backend in backends {
        match all.iter_mut().find(|known| known.name == backend.name) {
            None => all.push(backend.clone()),
            Some(known) => {
                let sum = |of: fn(&BackendStatus) -> u64| of(known) + of(backend);
                let (connections, opened, failed) =
                    (sum(|b| b.connections), sum(|b| b.opened), sum(|b| b.failed));
                let now = if known.state == BackendState::Removed { backend.clone() } else { known.clone() };
                *known = BackendStatus { connections, opened, failed, ..now };
            }
        }
    }
    all
}

/// A label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
