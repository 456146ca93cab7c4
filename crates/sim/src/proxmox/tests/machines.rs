//! Virtual machines, from clone to destroy.

use super::*;
use serde_json::json;

const CLONE: &str = "/nodes/pve1/qemu/9000/clone";

#[test]
fn a_clone_has_neither_name_nor_tags_until_it_is_done_and_is_locked() {
    let mut bench = Bench::with(&site(), 1.0);
    let upid =
        bench.ok("POST", CLONE, "newid=200&name=cp-0&full=1&target=pve2").as_str().unwrap().to_string();
    assert!(upid.starts_with("UPID:pve1:"), "{upid}");
    assert!(upid.ends_with(":qmclone:9000:root@pam!butler:"), "{upid}");
    let current = bench.ok("GET", "/nodes/pve1/qemu/200/status/current", "");
    assert_eq!((&current["lock"], &current["name"]), (&json!("clone"), &json!("VM 200")));
    let locked = (500, "VM is locked (clone)".to_string());
    assert_eq!(bench.refused("PUT", "/nodes/pve1/qemu/200/config", "cores=4"), locked);
    assert_eq!(bench.refused("DELETE", "/nodes/pve1/qemu/200", ""), locked);
    assert_eq!(bench.refused("PUT", "/nodes/pve1/qemu/200/resize", "disk=scsi0&size=%2B1G"), locked);
    let running = bench.ok("GET", &format!("/nodes/pve1/tasks/{upid}/status"), "");
    assert_eq!((&running["status"], &running["exitstatus"]), (&json!("running"), &Value::Null));
    bench.now += 60_000;
    bench.settle();
    assert_eq!(bench.exit(&upid), "OK");
    let config = bench.ok("GET", "/nodes/pve2/qemu/200/config", "");
    assert_eq!(config["name"], "cp-0");
    assert_eq!(config["scsi0"], "ceph-vm:vm-200-disk-0,iothread=1,size=10G");
    assert_eq!(config["ide2"], "ceph-vm:vm-200-cloudinit,media=cdrom");
    assert_eq!(config["lock"], Value::Null);
}

#[test]
fn what_a_clone_may_not_be() {
    let mut bench = Bench::new();
    let rows = [
        ("/nodes/pve1/qemu/9000/clone", "newid=100", "unable to create VM 100: config file already exists"),
        (
            "/nodes/pve2/qemu/9000/clone",
            "newid=200",
            "unable to find configuration file for VM 9000 on node 'pve2'",
        ),
        (CLONE, "newid=200&full=0&storage=ceph-vm", "parameter 'storage' not allowed for linked clones"),
        (
            CLONE,
            "newid=200&full=1&storage=local-lvm&target=pve2",
            "can't clone to non-shared storage 'local-lvm'",
        ),
        (CLONE, "newid=200&full=1&storage=nope", "storage 'nope' does not exist"),
        (CLONE, "newid=200&target=pve9", "no such cluster node 'pve9'"),
        (
            "/nodes/pve1/qemu/100/clone",
            "newid=200&full=0",
            "Linked clone feature is not supported for 'local-lvm:vm-100-disk-0' (scsi0)",
        ),
        (
            "/nodes/pve1/qemu/100/clone",
            "newid=200&full=1&target=pve2",
            "can't clone VM to node 'pve2' (VM uses local storage)",
        ),
    ];
    for (target, form, reason) in rows {
        assert_eq!(bench.refused("POST", target, form), (500, reason.to_string()), "{target} {form}");
    }
    let rows = [
        ("", "newid", "property is missing and it is not optional"),
        ("newid=abc", "newid", "type check ('integer') failed - got 'abc'"),
        ("newid=99", "newid", "value must have a minimum value of 100"),
        ("newid=200&name=a_b", "name", "invalid format - value does not look like a valid DNS name\n"),
        (
            "newid=200&tags=x",
            "tags",
            "property is not defined in schema and the schema does not allow additional properties",
        ),
        (
            "newid=200&format=iso",
            "format",
            "value 'iso' does not have a value in the enumeration 'raw, qcow2, vmdk'",
        ),
    ];
    for (form, name, reason) in rows {
        assert_eq!(bench.wrong("POST", CLONE, form, name), reason, "{form}");
    }
    assert_eq!(bench.state.vmids(), [100, 101, 9000]);
}

#[test]
fn a_linked_clone_takes_no_room_and_holds_its_template() {
    let mut bench = Bench::new();
    let before = bench.used("pve1", "ceph-vm");
    assert_eq!(bench.task("POST", CLONE, "newid=200&name=cp-0"), "OK");
    let config = bench.ok("GET", "/nodes/pve1/qemu/200/config", "");
    assert_eq!(config["scsi0"], "ceph-vm:base-9000-disk-0/vm-200-disk-0,iothread=1,size=10G");
    // Only its own cloud-init drive.
    assert_eq!(bench.used("pve1", "ceph-vm"), before + (4 << 20));
    let held = "base volume 'ceph-vm:base-9000-disk-0' is still in use by linked cloned 'vm-200-disk-0'";
    assert_eq!(bench.task("DELETE", "/nodes/pve1/qemu/9000", ""), held);
    assert_eq!(bench.task("PUT", "/nodes/pve1/qemu/200/resize", "disk=scsi0&size=12G"), "OK");
    assert_eq!(bench.used("pve1", "ceph-vm"), before + (4 << 20) + 2 * GIB);
    assert_eq!(bench.task("DELETE", "/nodes/pve1/qemu/200", ""), "OK");
    assert_eq!(bench.used("pve1", "ceph-vm"), before);
}

#[test]
fn configuration_is_set_at_once_or_by_a_task_and_checked_by_name() {
    let mut bench = Bench::new();
    assert_eq!(bench.task("POST", CLONE, "newid=200&name=cp-0&full=1&description=whose"), "OK");
    let config = "/nodes/pve1/qemu/200/config";
    let tags = "tags=Butler%3Bcluster-a%2Cbutler&cores=4&memory=8192&ipconfig0=ip%3D10.40.0.11%2F24%2Cgw%3D10.40.0.1";
    assert_eq!(bench.task("POST", config, tags), "OK");
    let shown = bench.ok("GET", config, "");
    assert_eq!((&shown["tags"], &shown["description"]), (&json!("butler;cluster-a"), &json!("whose\n")));
    let digest = shown["digest"].as_str().unwrap().to_string();
    assert_eq!(digest.len(), 40);
    let changed =
        (500, "detected modified configuration - file changed by other user? Try again.".to_string());
    assert_eq!(bench.refused("PUT", config, "cores=2&digest=0000"), changed);
    assert_eq!(bench.ok("PUT", config, &format!("cores=2&digest={digest}")), Value::Null);
    assert_ne!(bench.ok("GET", config, "")["digest"], digest);
    let not_defined = "property is not defined in schema and the schema does not allow additional properties";
    let rows = [
        ("corse=2", "corse", not_defined),
        ("cores=0", "cores", "value must have a minimum value of 1"),
        ("tags=a%21", "tags", "invalid format - invalid characters in tag 'a!'\n"),
        ("scsi99=local%3A1", "scsi99", not_defined),
        (
            "net0=bridge%3Dvmbr0",
            "net0",
            "invalid format - format error\nmodel: property is missing and it is not optional\n",
        ),
        (
            "ipconfig0=ip%3D10.40.0.11",
            "ipconfig0",
            "invalid format - format error\nip: invalid format - value does not look like a valid IPv4 network configuration\n",
        ),
        ("onboot=maybe", "onboot", "type check ('boolean') failed - got 'maybe'"),
        (
            "ostype=l27",
            "ostype",
            "value 'l27' does not have a value in the enumeration 'other, wxp, w2k, w2k3, w2k8, wvista, win7, win8, win10, win11, l24, l26, solaris'",
        ),
        ("delete=nothing", "delete", "unknown option 'nothing'"),
    ];
    for (form, name, reason) in rows {
        assert_eq!(bench.wrong("PUT", config, form, name), reason, "{form}");
    }
    let rows = [
        ("net0=virtio%2Cbridge%3Dvmbr7", "bridge 'vmbr7' does not exist"),
        ("cicustom=user%3Dlocal%3Asnippets%2Fa.yaml", "cicustom: snippets are not simulated"),
        ("args=-x", "only root can set 'args' config"),
        ("", "no options specified"),
    ];
    for (form, reason) in rows {
        assert_eq!(bench.refused("PUT", config, form), (500, reason.to_string()), "{form}");
    }
}

#[test]
fn disks_are_added_let_go_and_removed_with_their_room() {
    let mut bench = Bench::new();
    assert_eq!(bench.task("POST", CLONE, "newid=200&full=1"), "OK");
    let before = bench.used("pve1", "ceph-vm");
    let config = "/nodes/pve1/qemu/200/config";
    bench.ok("PUT", config, "scsi1=ceph-vm%3A20");
    assert_eq!(bench.used("pve1", "ceph-vm"), before + 20 * GIB);
    bench.ok("PUT", config, "delete=scsi1");
    let shown = bench.ok("GET", config, "");
    assert_eq!((&shown["scsi1"], &shown["unused0"]), (&Value::Null, &json!("ceph-vm:vm-200-disk-1")));
    bench.ok("PUT", config, "delete=unused0");
    assert_eq!(bench.used("pve1", "ceph-vm"), before);
    let rows = [
        ("disk=scsi0&size=5G", "shrinking disks is not supported"),
        ("disk=scsi7&size=5G", "disk 'scsi7' does not exist"),
        ("disk=ide2&size=5G", "you can't resize a cdrom"),
    ];
    for (form, reason) in rows {
        assert_eq!(bench.refused("PUT", "/nodes/pve1/qemu/200/resize", form), (500, reason.to_string()));
    }
    assert_eq!(bench.task("PUT", "/nodes/pve1/qemu/200/resize", "disk=scsi0&size=%2B2G"), "OK");
    assert!(bench.ok("GET", config, "")["scsi0"].as_str().unwrap().ends_with("size=12G"));
    assert_eq!(bench.used("pve1", "ceph-vm"), before + 2 * GIB);
}

#[test]
fn machines_are_switched_on_and_off_and_keep_their_disk_and_address() {
    let mut bench = Bench::new();
    assert_eq!(bench.task("POST", CLONE, "newid=200&name=cp-0&full=1"), "OK");
    let start = "/nodes/pve1/qemu/200/status/start";
    bench.ok("POST", start, "");
    let first = bench.settle();
    let [Effect::PowerOn { boot, .. }] = &first[..] else { panic!("{first:?}") };
    assert_eq!((boot.hostname.as_deref(), boot.known), (Some("cp-0"), false));
    assert_eq!(bench.task("POST", start, ""), "VM 200 already running");
    let running = bench.refused("DELETE", "/nodes/pve1/qemu/200", "");
    assert_eq!(running, (500, "VM 200 is running - destroy failed".to_string()));
    bench.ok("POST", "/nodes/pve1/qemu/200/status/reset", "");
    assert_eq!(bench.settle(), [Effect::Cycle { address: boot.address }]);
    bench.ok("POST", "/nodes/pve1/qemu/200/status/stop", "");
    assert_eq!(bench.settle(), [Effect::PowerOff { address: boot.address }]);
    assert_eq!(bench.ok("GET", "/nodes/pve1/qemu/200/status/current", "")["status"], "stopped");
    bench.ok("POST", start, "");
    let again = bench.settle();
    let [Effect::PowerOn { boot: second, .. }] = &again[..] else { panic!("{again:?}") };
    assert_eq!((second.address, second.known), (boot.address, true));
    bench.ok("POST", "/nodes/pve1/qemu/200/status/shutdown", "");
    bench.settle();
    bench.ok("DELETE", "/nodes/pve1/qemu/200?purge=1&destroy-unreferenced-disks=1", "");
    assert_eq!(bench.settle(), [Effect::Remove { address: boot.address }]);
    let gone = "Configuration file 'nodes/pve1/qemu-server/200.conf' does not exist";
    assert_eq!(bench.refused("GET", "/nodes/pve1/qemu/200/config", ""), (500, gone.to_string()));
    assert_eq!(
        bench.task("POST", "/nodes/pve1/qemu/9000/status/start", ""),
        "you can't start a vm if it's a template"
    );
}

#[test]
fn the_agent_answers_some_time_after_the_system_is_up_and_only_if_it_is_there() {
    let mut bench = Bench::with(&site(), 1.0);
    bench.ok("POST", CLONE, "newid=200&name=cp-0&full=1");
    bench.now += 60_000;
    bench.settle();
    let agent = "/nodes/pve1/qemu/200/agent/network-get-interfaces";
    assert_eq!(bench.refused("GET", agent, ""), (500, "VM 200 is not running".to_string()));
    bench.ok("POST", "/nodes/pve1/qemu/200/status/start", "");
    bench.now += 10_000;
    bench.settle();
    let silent = (500, "QEMU guest agent is not running".to_string());
    assert_eq!(bench.refused("GET", agent, ""), silent);
    bench.state.observe(200, true, true, bench.now);
    assert_eq!(bench.refused("GET", agent, ""), silent);
    bench.now += 10_000;
    let interfaces = bench.ok("GET", agent, "");
    let address = bench.state.machine_of(200).unwrap().to_string();
    assert_eq!(interfaces["result"][1]["ip-addresses"][0]["ip-address"], address);
    assert_eq!(interfaces["result"][1]["name"], "eth0");
    // A reboot silences it.
    bench.state.observe(200, true, false, bench.now);
    assert_eq!(bench.refused("GET", agent, ""), silent);
    // The plug was pulled behind Proxmox' back.
    bench.state.observe(200, false, false, bench.now);
    assert_eq!(bench.ok("GET", "/nodes/pve1/qemu/200/status/current", "")["status"], "stopped");
    bench.ok("PUT", "/nodes/pve1/qemu/100/config", "cores=1");
    let other = bench.refused("GET", "/nodes/pve1/qemu/100/agent/network-get-interfaces", "");
    assert_eq!(other, (500, "No QEMU guest agent configured".to_string()));
}

#[test]
fn cloud_init_needs_its_drive_and_dhcp_remembers() {
    let mut bench = Bench::new();
    assert_eq!(bench.task("POST", CLONE, "newid=200&full=1"), "OK");
    bench.ok("PUT", "/nodes/pve1/qemu/200/config", "ipconfig0=ip%3D10.40.0.11%2F24&delete=ide2");
    bench.ok("POST", "/nodes/pve1/qemu/200/status/start", "");
    bench.settle();
    let leased = bench.state.machine_of(200).unwrap().to_string();
    assert_eq!(leased, "10.40.0.50");
    assert_eq!(bench.task("POST", CLONE, "newid=201&full=1"), "OK");
    bench.ok("PUT", "/nodes/pve1/qemu/201/config", "ipconfig0=ip%3D10.40.0.11%2F24");
    bench.ok("POST", "/nodes/pve1/qemu/201/status/start", "");
    bench.settle();
    assert_eq!(bench.state.machine_of(201).unwrap().to_string(), "10.40.0.11");
}

#[test]
fn create_says_what_is_taken_and_templates_are_made_and_used() {
    let mut bench = Bench::new();
    let taken = bench.refused("POST", "/nodes/pve2/qemu", "vmid=100&name=x");
    assert_eq!(taken, (500, "unable to create VM 100 - VM 100 already exists on node 'pve1'".to_string()));
    let unknown = bench.wrong("POST", "/nodes/pve1/qemu", "vmid=300&disk=x", "disk");
    assert_eq!(
        unknown,
        "property is not defined in schema and the schema does not allow additional properties"
    );
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu", "vmid=300&name=t&scsi0=local-lvm%3A8"), "OK");
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/300/template", ""), "OK");
    let config = bench.ok("GET", "/nodes/pve1/qemu/300/config", "");
    assert_eq!(
        (&config["template"], &config["scsi0"]),
        (&json!(1), &json!("local-lvm:base-300-disk-0,size=8G"))
    );
    let again = bench.refused("POST", "/nodes/pve1/qemu/300/template", "");
    assert_eq!(again.1, "you can't convert a template to a template");
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/300/clone", "newid=301"), "OK");
    assert_eq!(
        bench.ok("GET", "/nodes/pve1/qemu/301/config", "")["scsi0"],
        "local-lvm:vm-301-disk-0,size=8G"
    );
}

#[test]
fn ids_that_are_free_and_not() {
    let mut bench = Bench::new();
    assert_eq!(bench.ok("GET", "/cluster/nextid", ""), "102");
    assert_eq!(bench.ok("GET", "/cluster/nextid?vmid=250", ""), "250");
    assert_eq!(bench.wrong("GET", "/cluster/nextid?vmid=100", "", "vmid"), "VM 100 already exists");
}

#[test]
fn resources_lag_behind_by_one_broadcast() {
    let mut bench = Bench::with(&site(), 1.0);
    let find = |bench: &mut Bench, vmid: u64| {
        let all = bench.ok("GET", "/cluster/resources?type=vm", "");
        all.as_array().unwrap().iter().find(|vm| vm["vmid"] == vmid).cloned().unwrap_or_default()
    };
    assert_eq!(find(&mut bench, 100)["status"], "running");
    bench.ok("PUT", "/nodes/pve1/qemu/100/config", "name=renamed&tags=new");
    let seen = find(&mut bench, 100);
    assert_eq!((&seen["name"], &seen["tags"]), (&json!("fileserver"), &json!("new")));
    bench.ok("POST", CLONE, "newid=200&name=cp-0");
    let new = find(&mut bench, 200);
    assert_eq!(
        (&new["name"], &new["status"], &new["lock"]),
        (&Value::Null, &json!("unknown"), &json!("clone"))
    );
    bench.now += 20_000;
    bench.settle();
    assert_eq!(find(&mut bench, 100)["name"], "renamed");
    assert_eq!(find(&mut bench, 200)["name"], "cp-0");
    // The list of one host is never behind.
    bench.ok("PUT", "/nodes/pve1/qemu/100/config", "name=again");
    let own = bench.ok("GET", "/nodes/pve1/qemu", "");
    assert_eq!(own[0]["name"], "again");
}

#[test]
fn tasks_are_told_to_their_owner_and_unknown_ones_to_nobody() {
    let mut bench = Bench::with(&site(), 1.0);
    let upid = bench.ok("POST", CLONE, "newid=200&name=cp-0").as_str().unwrap().to_string();
    let status = bench.ok("GET", &format!("/nodes/pve1/tasks/{}/status", upid.replace(':', "%3A")), "");
    assert_eq!((&status["user"], &status["tokenid"]), (&json!("root@pam"), &json!("butler")));
    assert_eq!((&status["type"], &status["id"]), (&json!("qmclone"), &json!("9000")));
    let active = bench.ok("GET", "/nodes/pve1/tasks?source=active", "");
    assert_eq!(active[0]["upid"], upid);
    bench.now += 60_000;
    bench.settle();
    assert_eq!(bench.ok("GET", "/nodes/pve1/tasks?source=active", ""), json!([]));
    assert_eq!(bench.ok("GET", "/nodes/pve1/tasks", "")[0]["status"], "OK");
    let log = bench.ok("GET", &format!("/nodes/pve1/tasks/{upid}/log"), "");
    assert_eq!(log, json!([{ "n": 1, "t": "TASK OK" }]));
    assert_eq!(bench.refused("GET", &format!("/nodes/pve2/tasks/{upid}/status"), "").1, "no such task");
    assert_eq!(bench.refused("GET", "/nodes/pve1/tasks/UPID:x/status", "").0, 400);
    bench.token = "PVEAPIToken=ops@pve!all=s3cret".to_string();
    assert_eq!(bench.refused("GET", &format!("/nodes/pve1/tasks/{upid}/status"), "").0, 403);
}

#[test]
fn a_boot_that_fails_leaves_the_machine_off() {
    let mut bench = Bench::new();
    assert_eq!(bench.task("POST", CLONE, "newid=200&name=cp-0"), "OK");
    let upid = bench.ok("POST", "/nodes/pve1/qemu/200/status/start", "").as_str().unwrap().to_string();
    let effects = bench.state.advance(bench.now);
    let [Effect::PowerOn { boot, .. }] = &effects[..] else { panic!("{effects:?}") };
    bench.state.booted(&upid, 200, boot.address, Err("there is a machine already".to_string()), bench.now);
    assert_eq!(bench.exit(&upid), "start failed: there is a machine already");
    assert_eq!(bench.ok("GET", "/nodes/pve1/qemu/200/status/current", "")["status"], "stopped");
    assert_eq!(bench.state.machine_of(200), None);
}

#[test]
fn calls_are_named_for_logs_and_scripts() {
    let mut bench = Bench::new();
    let object = |bench: &Bench, method: &str, target: &str, form: &str| {
        let call = Bench::request(method, target, form);
        (bench.state.operation_of(&call), bench.state.object_of(&call))
    };
    let named = |operation: &str, object: &str| (operation.to_string(), object.to_string());
    let clone = object(&bench, "POST", CLONE, "newid=200&name=cp-0");
    assert_eq!(clone, named("POST /nodes/pve1/qemu/9000/clone", "machine cp-0"));
    let upid = bench.ok("POST", CLONE, "newid=200&name=cp-0").as_str().unwrap().to_string();
    let task = object(&bench, "GET", &format!("/nodes/pve1/tasks/{upid}/status"), "");
    assert_eq!(task, named("GET /nodes/pve1/tasks/qmclone/status", "machine cp-0"));
    bench.settle();
    let config = object(&bench, "GET", "/nodes/pve1/qemu/200/config", "");
    assert_eq!(config, named("GET /nodes/pve1/qemu/200/config", "machine cp-0"));
    assert_eq!(object(&bench, "GET", "/version", ""), named("GET /version", "/version"));
}

#[test]
fn a_state_goes_through_json_and_comes_back() {
    let mut bench = Bench::with(&site(), 1.0);
    bench.ok("POST", CLONE, "newid=200&name=cp-0");
    let text = serde_json::to_string(&bench.state).unwrap();
    let back: State = serde_json::from_str(&text).unwrap();
    assert_eq!(back, bench.state);
    let site: ProxmoxSite = serde_json::from_str(&serde_json::to_string(&site()).unwrap()).unwrap();
    assert_eq!(site, super::site());
}
