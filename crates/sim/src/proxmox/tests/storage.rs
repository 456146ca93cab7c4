//! Storages, downloads, and room that runs out.

use super::*;
use serde_json::json;

const URL: &str = "https://images.example/talos.qcow2";

fn bench() -> Bench {
    let mut site = site();
    site.images.push(SiteImage {
        url: URL.to_string(),
        size: 100 << 20,
        sha256: "ab".repeat(32),
        talos_version: Some("v1.9.5".to_string()),
        agent: true,
    });
    Bench::with(&site, 0.0)
}

fn form(name: &str, sum: &str) -> String {
    let sum =
        if sum.is_empty() { String::new() } else { format!("&checksum={sum}&checksum-algorithm=sha256") };
    format!("content=import&filename={name}&url={}{sum}", URL.replace(':', "%3A").replace('/', "%2F"))
}

const DOWNLOAD: &str = "/nodes/pve1/storage/local/download-url";

#[test]
fn a_download_is_checked_and_never_overwrites() {
    let mut bench = bench();
    let (good, bad) = ("ab".repeat(32), "cd".repeat(32));
    let mismatch = format!("checksum mismatch: got '{good}' != expect '{bad}', aborting");
    assert_eq!(bench.task("POST", DOWNLOAD, &form("t.qcow2", &bad)), mismatch);
    assert_eq!(bench.ok("GET", "/nodes/pve1/storage/local/content?content=import", ""), json!([]));
    assert_eq!(bench.task("POST", DOWNLOAD, &form("t.qcow2", &good)), "OK");
    assert_eq!(bench.used("pve1", "local"), 100 << 20);
    // Once more with the checksum is fine, without it is not.
    assert_eq!(bench.task("POST", DOWNLOAD, &form("t.qcow2", &good)), "OK");
    let refused = "refusing to override existing file '/var/lib/vz/template/import/t.qcow2'";
    assert_eq!(bench.task("POST", DOWNLOAD, &form("t.qcow2", "")), refused);
    assert_eq!(bench.used("pve1", "local"), 100 << 20);
    let unknown = form("u.qcow2", "").replace("talos.qcow2", "other.qcow2");
    assert_eq!(bench.task("POST", DOWNLOAD, &unknown), "download failed: exit code 8");
    let listed = bench.ok("GET", "/nodes/pve1/storage/local/content", "");
    assert_eq!(listed[0]["volid"], "local:import/t.qcow2");
    assert_eq!(listed[0]["format"], "qcow2");
    let gone = bench.task("DELETE", "/nodes/pve1/storage/local/content/local%3Aimport%2Ft.qcow2", "");
    assert_eq!((gone.as_str(), bench.used("pve1", "local")), ("OK", 0));
}

#[test]
fn downloads_are_refused_where_they_make_no_sense() {
    let mut bench = bench();
    assert_eq!(
        bench.wrong("POST", DOWNLOAD, &form("t.exe", ""), "filename"),
        "invalid filename or wrong extension"
    );
    assert_eq!(
        bench.wrong("POST", DOWNLOAD, &format!("{}&checksum=00", form("t.qcow2", "")), "checksum"),
        "missing property - 'checksum' requires this property: checksum-algorithm"
    );
    assert_eq!(
        bench.wrong("POST", DOWNLOAD, "content=backup&filename=a&url=http%3A%2F%2Fa", "content"),
        "value 'backup' does not have a value in the enumeration 'iso, vztmpl, import'"
    );
    assert_eq!(
        bench.refused("POST", "/nodes/pve1/storage/ceph-vm/download-url", &form("t.qcow2", "")),
        (500, "can't upload to storage type 'rbd', not a file based storage!".to_string())
    );
    assert_eq!(
        bench.refused("GET", "/nodes/pve1/storage/nowhere/status", ""),
        (500, "storage 'nowhere' does not exist".to_string())
    );
}

#[test]
fn a_machine_is_made_from_an_image_and_boots_what_is_on_it() {
    let mut bench = bench();
    assert_eq!(bench.task("POST", DOWNLOAD, &form("t.qcow2", "")), "OK");
    let settings = "vmid=300&name=w-0&memory=2048&cores=2&agent=1&net0=virtio%2Cbridge%3Dvmbr0&boot=order%3Dscsi0\
        &scsi0=ceph-vm%3A0%2Cimport-from%3Dlocal%3Aimport%2Ft.qcow2&ide2=ceph-vm%3Acloudinit\
        &ipconfig0=ip%3D10.40.0.31%2F24%2Cgw%3D10.40.0.1&scsi1=ceph-vm%3A20";
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu", settings), "OK");
    let config = bench.ok("GET", "/nodes/pve1/qemu/300/config", "");
    assert_eq!(config["scsi0"], "ceph-vm:vm-300-disk-0,size=1246M");
    assert_eq!(config["scsi1"], "ceph-vm:vm-300-disk-1,size=20G");
    assert_eq!(config["ide2"], "ceph-vm:vm-300-cloudinit,media=cdrom");
    assert_eq!((&config["memory"], &config["cores"]), (&json!("2048"), &json!(2)));
    assert!(config["net0"].as_str().unwrap().starts_with("virtio=BC:24:11:"));
    bench.ok("POST", "/nodes/pve1/qemu/300/status/start", "");
    let effects = bench.settle();
    let [Effect::PowerOn { boot, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(boot.talos_version, "v1.9.5");
    assert_eq!(boot.address.to_string(), "10.40.0.31");
    assert!(!boot.known && !boot.from_iso);
}

#[test]
fn a_full_storage_fails_the_task_and_leaves_nothing() {
    for (kind, words) in [
        ("rbd", "clone failed: rbd create 'vm-200-disk-0' error: (28) No space left on device"),
        ("zfspool", "clone failed: zfs error: cannot create 'rpool/data/vm-200-disk-0': out of space"),
        (
            "lvmthin",
            "clone failed: lvcreate 'pve/vm-200-disk-0' error:   Volume group \"pve\" has insufficient free space (1023 extents): 2560 required.",
        ),
    ] {
        let mut site = site();
        let storage = site.storages.iter_mut().find(|s| s.name == "ceph-vm").unwrap();
        storage.kind = kind.to_string();
        storage.total = 14 * GIB;
        let mut bench = Bench::with(&site, 0.0);
        let before = bench.used("pve1", "ceph-vm");
        // The cloud-init drive comes first, and is taken away again.
        let exit = bench.task("POST", "/nodes/pve1/qemu/9000/clone", "newid=200&full=1");
        assert_eq!(exit, words.replace("1023", "1022"), "{kind}");
        assert_eq!(bench.used("pve1", "ceph-vm"), before);
        assert_eq!(bench.refused("GET", "/nodes/pve1/qemu/200/config", "").0, 500);
    }
}

#[test]
fn storages_that_are_not_shared_have_their_room_on_each_host() {
    let mut bench = bench();
    assert_eq!(bench.used("pve1", "local-lvm"), 64 * GIB);
    assert_eq!(bench.used("pve2", "local-lvm"), 32 * GIB);
    assert_eq!(bench.used("pve3", "local-lvm"), 0);
    let listed = bench.ok("GET", "/nodes/pve1/storage?content=images", "");
    let names: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|s| s["storage"].as_str()).collect();
    assert_eq!(names, ["ceph-vm", "local", "local-lvm"]);
    let foreign = bench.refused("DELETE", "/nodes/pve1/storage/local-lvm/content/vm-100-disk-0", "");
    let words = "cannot remove volume 'local-lvm:vm-100-disk-0', VM/CT '100' still exists";
    assert_eq!(foreign, (500, words.to_string()));
    let all = bench.ok("GET", "/cluster/resources?type=storage", "");
    assert_eq!(all.as_array().unwrap().len(), 9);
}

#[test]
fn one_copy_too_many_does_not_get_the_storages_lock() {
    let mut bench = Bench::with(&site(), 1.0);
    assert!(bench.state.limit_copies("ceph-vm", Some(2)));
    let mut clone = |id: u32| {
        let form = format!("newid={id}&full=1&storage=ceph-vm");
        bench.ok("POST", "/nodes/pve1/qemu/9000/clone", &form).as_str().unwrap().to_string()
    };
    let upids = [200, 201, 202].map(&mut clone);
    bench.now += 3_600_000;
    bench.settle();
    let lock = "clone failed: cfs-lock 'storage-ceph-vm' error: got lock request timeout";
    assert_eq!(upids.map(|upid| bench.exit(&upid)), ["OK", "OK", lock]);
    assert_eq!(bench.refused("GET", "/nodes/pve1/qemu/202/config", "").0, 500, "nothing is left of it");
    // With the others done, there is room again.
    let upid =
        bench.ok("POST", "/nodes/pve1/qemu/9000/clone", "newid=202&full=1").as_str().unwrap().to_string();
    bench.now += 3_600_000;
    bench.settle();
    assert_eq!(bench.exit(&upid), "OK");
}
