//! Whatever is called in whatever order: no room is lost, and no lock outlives its task.

use super::*;
use proptest::prelude::*;

fn calls() -> impl Strategy<Value = (String, String, String)> {
    let id = prop_oneof![Just(100_u32), Just(101), 200..204_u32, Just(9000)];
    let node = prop_oneof![4 => Just("pve1"), 1 => Just("pve2")];
    let storage = prop_oneof![Just("ceph-vm"), Just("local-lvm"), Just("local")];
    (0..15_u8, id, 200..204_u32, node, storage, 1..40_u32).prop_map(|(what, id, new, node, storage, size)| {
        let vm = format!("/nodes/{node}/qemu/{id}");
        let (method, path, form) = match what {
            0 => ("POST", format!("{vm}/clone"), format!("newid={new}&full=1&storage={storage}")),
            1 => ("POST", format!("{vm}/clone"), format!("newid={new}&name=m{new}")),
            2 => ("POST", format!("{vm}/clone"), format!("newid={new}&full=1&target=pve2")),
            3 => (
                "POST",
                format!("/nodes/{node}/qemu"),
                format!("vmid={new}&scsi0={storage}%3A{size}&ide2={storage}%3Acloudinit"),
            ),
            4 => ("PUT", format!("{vm}/config"), format!("scsi1={storage}%3A{size}")),
            5 => ("POST", format!("{vm}/config"), "delete=scsi1%2Cide2".to_string()),
            13 => ("PUT", format!("{vm}/config"), format!("delete=scsi1%2Cunused0&scsi2={storage}%3A{size}")),
            6 => ("PUT", format!("{vm}/config"), "delete=unused0".to_string()),
            7 => ("PUT", format!("{vm}/resize"), format!("disk=scsi0&size=%2B{size}G")),
            8 => ("POST", format!("{vm}/status/start"), String::new()),
            9 => ("POST", format!("{vm}/status/stop"), String::new()),
            10 => ("DELETE", format!("{vm}?destroy-unreferenced-disks=1"), String::new()),
            11 => ("DELETE", vm.clone(), String::new()),
            12 => ("POST", format!("{vm}/template"), String::new()),
            _ => ("GET", format!("{vm}/config"), String::new()),
        };
        (method.to_string(), path, form)
    })
}

/// Everything that must always hold.
fn check(state: &State) {
    for (name, storage) in &state.storages {
        for node in state.nodes.keys() {
            let used = storage.used(node);
            assert!(used <= storage.total, "{name} on {node} has more on it than fits");
        }
        for volume in storage.volumes.values() {
            assert!(volume.used <= volume.size, "{} takes more than it is", volume.volid);
            let owner = volume.vmid.filter(|_| volume.content == "images");
            let known = owner.is_none_or(|id| state.vms.contains_key(&id));
            assert!(known, "{} belongs to a machine that is gone", volume.volid);
            let base = volume.parent.as_ref().is_none_or(|p| storage.volumes.values().any(|v| v.volid == *p));
            assert!(base, "{} rests on nothing", volume.volid);
        }
    }
    for (vmid, vm) in &state.vms {
        let Some(lock) = vm.lock() else { continue };
        let task = state.active.iter().filter_map(|upid| state.tasks.get(upid)).any(|t| match &t.work {
            state::Work::Clone { vmid: id, .. }
            | state::Work::Create { vmid: id, .. }
            | state::Work::Undo { vmid: id, .. } => id == vmid,
            _ => false,
        });
        assert!(task, "VM {vmid} is locked ({lock}) and nothing is done to it");
    }
    let unfinished: Vec<&String> =
        state.tasks.values().filter(|t| t.ended.is_none()).map(|t| &t.upid).collect();
    assert_eq!(unfinished.len(), state.active.len(), "{unfinished:?}");
}

/// Every volume in a configuration is there.
fn check_drives(state: &State) {
    for (vmid, vm) in &state.vms {
        for (key, text) in
            vm.config.iter().filter(|(key, _)| schema::is_drive(key) || key.starts_with("unused"))
        {
            let drive = volumes::Drive::parse(text);
            assert!(
                state.volume(&drive.volume, &vm.node).is_some(),
                "{key} of VM {vmid}: {text} is not there"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_room_is_lost_and_no_lock_is_left(steps in prop::collection::vec((calls(), 0..6_000_u64), 1..40)) {
        let mut site = site();
        for storage in &mut site.storages {
            storage.total = 150 * GIB;
        }
        let mut bench = Bench::with(&site, 1.0);
        for ((method, path, form), pause) in steps {
            let answer = bench.call(&method, &path, &form);
            prop_assert!(matches!(answer.status, 200 | 400 | 500), "{method} {path}: {}", answer.body);
            check(&bench.state);
            bench.now += pause;
            bench.settle();
            check(&bench.state);
            check_drives(&bench.state);
        }
        bench.now += 3_600_000;
        bench.settle();
        prop_assert!(bench.state.active.is_empty());
        prop_assert!(bench.state.vms.values().all(|vm| vm.lock().is_none()));
        // Without its machines, a storage has nothing on it but files.
        for vmid in bench.state.vmids() {
            bench.state.free_all(vmid);
        }
        prop_assert!(bench.state.volumes().is_empty(), "{:?}", bench.state.volumes());
    }
}
