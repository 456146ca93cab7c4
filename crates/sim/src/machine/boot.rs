//! Power, the way up to a running node, and the way down to the next boot.

use super::{Action, Effect, Etcd, EtcdCall, Media, Port, Run, ServiceState, Stage, Task, Turn};

/// Services that every configured node runs from the start, beside those with a story of their own.
const BASE_SERVICES: [&str; 6] = ["auditd", "containerd", "dashboard", "machined", "syslogd", "udevd"];

impl Turn {
    pub(super) fn power_on(&mut self) {
        if self.machine.stage != Stage::Off {
            return;
        }
        self.machine.boot += 1;
        self.machine.stage = Stage::PoweringOn;
        self.push(Effect::Start(Task::Boot));
    }

    pub(super) fn power_off(&mut self) {
        if self.machine.stage == Stage::Off {
            return;
        }
        self.push(Effect::Close { graceful: false });
        self.stop_etcd();
        self.off();
    }

    /// Nothing of this boot is left; what it had started comes to nothing.
    pub(super) fn off(&mut self) {
        self.machine.boot += 1;
        self.machine.stage = Stage::Off;
        self.machine.run = Run::default();
    }

    /// The initialize sequence is over: is there a configuration?
    pub(super) fn booted(&mut self) {
        if self.machine.stage != Stage::PoweringOn {
            return;
        }
        if self.machine.disk.installed.is_none() && self.machine.media == Media::DiskImage {
            self.log("SIMULATED: the disk was wiped and there is no other boot media");
            self.off();
            return;
        }
        if let Some(version) = self.machine.disk.staged_version.take() {
            self.machine.disk.installed = Some(version);
        }
        self.machine.version =
            self.machine.disk.installed.clone().unwrap_or_else(|| self.machine.media_version.clone());
        if let Some(staged) = self.machine.disk.staged.take() {
            self.machine.disk.config = Some(staged);
        }
        self.log(format!("SIMULATED Talos {} booted", self.machine.version));
        if self.machine.disk.config.is_some() {
            self.boot_configured();
        } else {
            self.enter_maintenance();
        }
    }

    fn enter_maintenance(&mut self) {
        self.machine.stage = Stage::Maintenance;
        self.task("runningMaintenance", Action::Start);
        self.log("this machine is reachable at its addresses; upload a configuration to go on");
        self.push(Effect::Serve(Port::Maintenance));
    }

    /// The maintenance API has had the time to answer; now it goes away.
    pub(super) fn leave_maintenance(&mut self) {
        if self.machine.stage != Stage::LeavingMaintenance {
            return;
        }
        self.push(Effect::Close { graceful: true });
        self.task("runningMaintenance", Action::Stop);
        if self.machine.disk.installed.is_some() {
            self.boot_configured();
        } else {
            self.machine.stage = Stage::Installing;
            self.sequence("install", Action::Start);
            self.log("installing Talos to the disk");
            self.push(Effect::Start(Task::Install));
        }
    }

    pub(super) fn installed(&mut self) {
        if self.machine.stage != Stage::Installing {
            return;
        }
        let image_version = self.machine.config().and_then(|config| config.installer_version());
        self.machine.disk.installed =
            Some(image_version.unwrap_or_else(|| self.machine.media_version.clone()));
        self.sequence("install", Action::Stop);
        self.go_down();
    }

    /// Closes everything and starts the way to the next boot.
    pub(super) fn go_down(&mut self) {
        self.stop_etcd();
        self.machine.boot += 1;
        self.machine.stage = Stage::Rebooting;
        self.machine.run = Run::default();
        self.push(Effect::Close { graceful: true });
        self.push(Effect::Start(Task::Reboot));
    }

    pub(super) fn rebooted(&mut self) {
        if self.machine.stage != Stage::Rebooting {
            return;
        }
        self.machine.stage = Stage::PoweringOn;
        self.push(Effect::Start(Task::Boot));
    }

    fn boot_configured(&mut self) {
        self.machine.stage = Stage::Booting;
        self.machine.run = Run::default();
        self.sequence("boot", Action::Start);
        self.task("startAllServices", Action::Start);
        for id in BASE_SERVICES {
            self.service_healthy(id, "Service is running");
        }
        self.service("apid", ServiceState::Waiting, "Waiting for api certificates");
        self.service("cri", ServiceState::Waiting, "Waiting for network");
        self.service(
            "kubelet",
            ServiceState::Waiting,
            "Waiting for service \"cri\" to be \"up\", time sync, network, nodename",
        );
        self.push(Effect::Start(Task::Cri));
        if self.machine.is_control_plane() {
            self.service("trustd", ServiceState::Waiting, "Waiting for service \"containerd\" to be \"up\"");
            self.service(
                "etcd",
                ServiceState::Waiting,
                "Waiting for service \"cri\" to be \"up\", time sync, network, etcd spec",
            );
            self.push(Effect::Start(Task::Apid));
        } else {
            self.push(Effect::RequestCertificate);
        }
    }

    /// The certificate of the API is there.
    pub(super) fn open_apid(&mut self) {
        if self.machine.run.apid || self.machine.stage != Stage::Booting {
            return;
        }
        if self.machine.is_control_plane() && !self.key_is_readable() {
            return self
                .log("controller failed: error parsing the CA of the Talos API: unsupported key type");
        }
        self.machine.run.apid = true;
        self.push(Effect::Serve(Port::Apid));
        self.service_healthy("apid", "Started task apid (PID 1604) for container apid");
        if self.machine.is_control_plane() {
            self.push(Effect::Serve(Port::Trustd));
            self.service_healthy("trustd", "Started task trustd (PID 1611) for container trustd");
        }
        self.maybe_running();
    }

    fn key_is_readable(&self) -> bool {
        self.machine.config().is_some_and(|config| config.key_is_readable(&self.machine.version))
    }

    pub(super) fn cri_up(&mut self) {
        if self.machine.stage != Stage::Booting {
            return;
        }
        self.machine.run.cri = true;
        self.service_healthy("cri", "Process Process([\"/bin/containerd\"]) started with PID 1570");
        self.push(Effect::Start(Task::TimeSync));
    }

    pub(super) fn time_synced(&mut self) {
        if self.machine.stage != Stage::Booting {
            return;
        }
        self.machine.run.time_synced = true;
        self.service("kubelet", ServiceState::Preparing, "Running pre state");
        self.push(Effect::Start(Task::Kubelet));
        if self.machine.is_control_plane() {
            self.start_etcd();
        }
    }

    pub(super) fn kubelet_up(&mut self) {
        if !matches!(self.machine.stage, Stage::Booting | Stage::Running) {
            return;
        }
        self.machine.run.kubelet = true;
        self.service_healthy("kubelet", "Started task kubelet (PID 1720) for container kubelet");
        self.maybe_running();
    }

    /// The boot sequence ends when every service is up; on a control plane that means: when etcd is.
    pub(super) fn maybe_running(&mut self) {
        let run = &self.machine.run;
        let etcd = !self.machine.is_control_plane() || matches!(run.etcd, Etcd::Running { .. });
        let up = run.apid && run.cri && run.time_synced && run.kubelet && etcd;
        if self.machine.stage != Stage::Booting || !up {
            return;
        }
        self.machine.stage = Stage::Running;
        self.task("startAllServices", Action::Stop);
        self.sequence("boot", Action::Stop);
        self.push(Effect::Start(Task::StaticPods));
    }

    fn stop_etcd(&mut self) {
        if let (Etcd::Running { .. } | Etcd::Starting, Some(member)) =
            (&self.machine.run.etcd, self.machine.disk.etcd)
        {
            self.push(Effect::Etcd(EtcdCall::Stop(member)));
        }
    }
}
