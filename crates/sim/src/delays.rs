//! How long things take on a simulated machine: one table, scaled by one knob.

use crate::machine::Task;
use std::time::Duration;

/// Seconds at speed 1, after what is known of real machines (a fast x86 server that boots by kexec).
const fn seconds(task: Task) -> f64 {
    match task {
        Task::Boot => 5.0,
        Task::CloseMaintenance => 1.0,
        Task::Install => 30.0,
        Task::Reboot => 15.0,
        Task::Apid => 8.0,
        Task::Cri => 3.0,
        Task::TimeSync => 2.0,
        Task::Kubelet => 6.0,
        Task::EtcdJoin => 3.0,
        Task::EtcdData => 2.0,
        Task::EtcdStart => 8.0,
        Task::EtcdPromote => 15.0,
        Task::StaticPods => 25.0,
        Task::Reset => 20.0,
        Task::Upgrade => 60.0,
        Task::Shutdown => 5.0,
        Task::TryTimeout(_) => 60.0,
    }
}

/// How much a delay varies around its value in the table, either way.
const JITTER: f64 = 0.1;

/// What repeats until something else happens must not turn into a busy loop when nothing takes time.
const RETRY_FLOOR: Duration = Duration::from_millis(10);

/// The length of a task. `speed` 1 is real time, 0.1 a tenth of it, 0 no time at all; `random` is in 0..1.
pub(crate) fn delay(task: Task, speed: f64, random: f64) -> Duration {
    let factor = 1.0 + JITTER * (random * 2.0 - 1.0);
    let scaled = seconds(task) * speed.max(0.0) * factor;
    let length = Duration::try_from_secs_f64(scaled).unwrap_or(Duration::MAX);
    match task {
        Task::EtcdJoin | Task::EtcdPromote => length.max(RETRY_FLOOR),
        // The one delay that is a promise to the user, not a property of a machine.
        Task::TryTimeout(_) => Duration::from_secs(60),
        _ => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_zero_takes_no_time_but_loops_still_breathe() {
        assert_eq!(delay(Task::Install, 0.0, 0.5), Duration::ZERO);
        assert_eq!(delay(Task::EtcdJoin, 0.0, 0.5), RETRY_FLOOR);
    }

    #[test]
    fn speed_scales_and_jitter_stays_within_its_bounds() {
        assert_eq!(delay(Task::Install, 1.0, 0.5), Duration::from_secs(30));
        assert_eq!(delay(Task::Install, 0.5, 0.5), Duration::from_secs(15));
        assert!(delay(Task::Install, 1.0, 0.0) >= Duration::from_millis(26_999));
        assert!(delay(Task::Install, 1.0, 1.0) <= Duration::from_millis(33_001));
    }
}
