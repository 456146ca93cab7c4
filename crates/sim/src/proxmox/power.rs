//! `POST .../status/{start,stop,shutdown,reboot,reset}`.

use super::auth::Caller;
use super::request::{Call, Outcome, Refusal};
use super::schema::{self, BOOL, Kind, TEXT, may};
use super::state::{State, Work};
use super::tasks::SHUTDOWN;

impl State {
    pub(super) fn power(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        verb: &str,
        now: u64,
    ) -> Outcome {
        let own = [
            may("skiplock", BOOL),
            may("timeout", Kind::Integer(0, i64::MAX)),
            may("forceStop", BOOL),
            may("keepActive", BOOL),
            may("overrule-shutdown", BOOL),
            may("machine", TEXT),
            may("force-cpu", TEXT),
        ];
        schema::check(call, &own, false)?;
        self.need(caller, &format!("/vms/{vmid}"), &["VM.PowerMgmt"])?;
        self.may_skip_lock(caller, call)?;
        let vm = self.vm(node, vmid)?;
        let (work, extra) = match verb {
            "start" => (Work::Start { vmid }, 0.0),
            "stop" => (Work::Stop { vmid }, 0.0),
            "shutdown" => (Work::Stop { vmid }, SHUTDOWN),
            "reboot" => (Work::Reboot { vmid }, 0.0),
            "reset" => (Work::Reset { vmid }, 0.0),
            _ => return Err(Refusal::not_implemented(&call.method, &call.path_text())),
        };
        if matches!(verb, "reboot") && !vm.running {
            return Err(Refusal::died(format!("VM {vmid} not running")));
        }
        Ok(self.begin(now, caller, node, (&format!("qm{verb}"), &vmid.to_string()), work, extra))
    }
}
