//! Tickets, tokens and access lists.

use super::*;
use serde_json::json;

fn login(bench: &mut Bench, form: &str) -> Answer {
    let call = Bench::request("POST", "/access/ticket", form);
    bench.state.handle(&call, bench.now)
}

fn with_ticket(bench: &mut Bench, login: &Answer, method: &str, target: &str, csrf: bool) -> (u16, String) {
    let ticket = login.body["data"]["ticket"].as_str().unwrap();
    let token = login.body["data"]["CSRFPreventionToken"].as_str().unwrap();
    let call = Call {
        cookie: Some(format!("PVEAuthCookie={}", ticket.replace(':', "%3A").replace('@', "%40"))),
        csrf: csrf.then(|| token.to_string()),
        ..Bench::request(method, target, "")
    };
    let answer = bench.state.handle(&call, bench.now);
    (answer.status, answer.reason)
}

#[test]
fn a_ticket_is_for_the_right_password_two_hours_and_writes_with_a_csrf_token() {
    let mut bench = Bench::new();
    let refused = login(&mut bench, "username=root%40pam&password=wrong");
    assert_eq!((refused.status, refused.reason.as_str()), (401, "authentication failure"));
    assert_eq!(refused.body, json!({ "data": null, "message": "authentication failure\n" }));
    let missing = login(&mut bench, "username=root%40pam");
    assert_eq!(missing.body["errors"]["password"], "property is missing and it is not optional");
    let granted = login(&mut bench, "username=root&realm=pam&password=rehearsal");
    assert_eq!(granted.status, 200, "{}", granted.body);
    assert_eq!(granted.body["data"]["username"], "root@pam");
    let start = "/nodes/pve1/qemu/100/status/reset";
    assert_eq!(with_ticket(&mut bench, &granted, "GET", "/version", false).0, 200);
    let no_token = (401, "Permission denied - invalid csrf token".to_string());
    assert_eq!(with_ticket(&mut bench, &granted, "POST", start, false), no_token);
    assert_eq!(with_ticket(&mut bench, &granted, "POST", start, true).0, 200);
    bench.now += 2 * 3600 * 1000;
    let expired = (401, "permission denied - invalid PVE ticket".to_string());
    assert_eq!(with_ticket(&mut bench, &granted, "GET", "/version", false), expired);
}

#[test]
fn callers_without_a_good_token_are_told_why() {
    let mut bench = Bench::new();
    let rows = [
        ("", "No ticket"),
        ("PVEAuthCookie=nonsense", "permission denied - invalid PVE ticket"),
        ("PVEAPIToken=nobody@pam!x=y", "no such user ('nobody@pam')"),
        ("PVEAPIToken=root@pam!other=y", "no such token 'other' for user 'root@pam'"),
        ("PVEAPIToken=root@pam!butler=wrong", "invalid token value!"),
    ];
    for (header, reason) in rows {
        bench.token = header.to_string();
        assert_eq!(bench.refused("GET", "/version", ""), (401, reason.to_string()), "{header}");
    }
    bench.token = "PVEAPIToken=ops@pve!all=s3cret".to_string();
    assert_eq!(bench.ok("GET", "/version", "")["release"], "8.4");
}

#[test]
fn privileges_are_checked_one_by_one_and_a_separate_token_has_less() {
    let mut bench = Bench::new();
    bench.token = "PVEAPIToken=ops@pve!all=s3cret".to_string();
    let forbidden =
        |path: &str, privilege: &str| (403, format!("Permission check failed ({path}, {privilege})"));
    let rows = [
        ("POST", "/nodes/pve1/qemu/9000/clone", "newid=200", forbidden("/vms/9000", "VM.Clone")),
        ("POST", "/nodes/pve1/qemu", "vmid=200", forbidden("/vms/200", "VM.Allocate")),
        ("PUT", "/nodes/pve1/qemu/9000/config", "cores=2", forbidden("/vms/9000", "VM.Config.CPU")),
        ("DELETE", "/nodes/pve1/qemu/9000", "", forbidden("/vms/9000", "VM.Allocate")),
        (
            "PUT",
            "/nodes/pve1/qemu/9000/resize",
            "disk=scsi0&size=%2B1G",
            forbidden("/vms/9000", "VM.Config.Disk"),
        ),
        (
            "GET",
            "/nodes/pve1/qemu/9000/agent/network-get-interfaces",
            "",
            forbidden("/vms/9000", "VM.Monitor"),
        ),
        ("GET", "/nodes/pve1/status", "", forbidden("/nodes/pve1", "Sys.Audit")),
        ("POST", "/nodes/pve1/qemu/100/status/start", "", forbidden("/vms/100", "VM.PowerMgmt")),
        (
            "GET",
            "/nodes/pve1/storage/local/content",
            "",
            forbidden("/storage/local", "Datastore.Audit|Datastore.AllocateSpace"),
        ),
        (
            "POST",
            "/nodes/pve1/storage/local/download-url",
            "content=iso&filename=a.iso&url=http%3A%2F%2Fa",
            forbidden("/storage/local", "Datastore.AllocateTemplate"),
        ),
    ];
    for (method, target, form, expected) in rows {
        assert_eq!(bench.refused(method, target, form), expected, "{method} {target}");
    }
    // Lists show what the caller may see, and no more.
    let seen = bench.ok("GET", "/cluster/resources?type=vm", "");
    assert_eq!(seen.as_array().unwrap().len(), 1);
    assert_eq!(seen[0]["vmid"], 9000);
    let held = bench.ok("GET", "/access/permissions?path=/vms/9000", "");
    assert_eq!(held["/vms/9000"]["VM.PowerMgmt"], 1);
    bench.token = "PVEAPIToken=ops@pve!little=s3cret".to_string();
    let config = bench.refused("GET", "/nodes/pve1/qemu/9000/config", "");
    assert_eq!(config, forbidden("/vms/9000", "VM.Audit"));
}

#[test]
fn the_most_specific_entry_decides() {
    let mut site = site();
    let acl = |path: &str, role: &str| SiteAcl {
        path: path.to_string(),
        who: "ops@pve".to_string(),
        role: role.to_string(),
        propagate: true,
    };
    site.acls.extend([acl("/", "PVEAdmin"), acl("/vms/100", "NoAccess")]);
    let mut bench = Bench::with(&site, 0.0);
    bench.token = "PVEAPIToken=ops@pve!all=s3cret".to_string();
    assert_eq!(bench.refused("GET", "/nodes/pve1/qemu/100/config", "").0, 403);
    bench.ok("GET", "/nodes/pve2/qemu/101/config", "");
    bench.ok("PUT", "/nodes/pve2/qemu/101/config", "cores=3");
    assert_eq!(bench.ok("GET", "/nodes/pve2/qemu/101/config", "")["cores"], 3);
}

#[test]
fn hosts_and_paths_that_are_not_there() {
    let mut site = site();
    site.nodes[2].online = false;
    let mut bench = Bench::with(&site, 0.0);
    let rows = [
        (
            "GET",
            "/nodes/pve9/qemu",
            500,
            "hostname lookup 'pve9' failed - failed to get address info for: pve9: Name or service not known",
        ),
        (
            "GET",
            "/nodes/pve3/qemu",
            595,
            "Errors during connection establishment, proxy handshake: No route to host",
        ),
        ("GET", "/nodes/pve1/lxc", 501, "Method 'GET /nodes/pve1/lxc' not implemented"),
        ("POST", "/cluster/resources", 501, "Method 'POST /cluster/resources' not implemented"),
    ];
    for (method, target, status, reason) in rows {
        assert_eq!(bench.refused(method, target, ""), (status, reason.to_string()), "{target}");
    }
    let nodes = bench.ok("GET", "/nodes", "");
    let states: Vec<&str> = nodes.as_array().unwrap().iter().filter_map(|n| n["status"].as_str()).collect();
    assert_eq!(states, ["online", "online", "offline"]);
    let status = bench.ok("GET", "/nodes/pve1/status", "");
    assert_eq!(status["cpuinfo"]["cpus"], 32);
    assert_eq!(bench.ok("GET", "/cluster/status", "")[0]["quorate"], 1);
    assert_eq!(bench.ok("GET", "/pools", ""), json!([]));
}

#[test]
fn secrets_are_not_shown() {
    let bench = Bench::new();
    let shown = format!("{:?} {:?}", bench.state, site());
    assert!(!shown.contains("rehearsal") && !shown.contains("s3cret") && !shown.contains("7f0c2a5e"));
}

#[test]
fn bodies_may_be_json_but_not_with_delete() {
    let read = |method: &str, kind: &str, body: &str| {
        Call::read(method, "/api2/json/nodes/pve1/qemu?a=1", kind, body.as_bytes())
    };
    let call = read("POST", "application/json", r#"{"vmid":200,"onboot":true,"name":"x","none":null}"#);
    let call = call.unwrap().unwrap();
    let expected = [("a", "1"), ("name", "x"), ("onboot", "1"), ("vmid", "200")];
    assert_eq!(call.params, expected.map(|(k, v)| (k.to_string(), v.to_string())).into());
    assert_eq!(read("POST", "application/json", "[1]").unwrap_err().status, 400);
    let delete = read("DELETE", "application/x-www-form-urlencoded", "purge=1").unwrap_err();
    assert_eq!((delete.status, delete.why.as_str()), (501, "Unexpected content for method 'DELETE'"));
    assert_eq!(Call::read("GET", "/index.html", "", b""), Ok(None));
}
