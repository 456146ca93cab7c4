//! Storages over the API: what is there, what is on it, downloads and deletions.

use super::auth::Caller;
use super::request::{Call, Outcome, Refusal};
use super::schema::{self, BOOL, Kind, TEXT, may, must};
use super::state::{State, Storage, Volume, Work};
use serde_json::{Value, json};

const SEES: [&str; 2] = ["Datastore.Audit", "Datastore.AllocateSpace"];

/// What a download can be told.
const DOWNLOAD: [schema::Param; 8] = [
    must("content", Kind::OneOf(&["iso", "vztmpl", "import"])),
    must("filename", TEXT),
    must("url", TEXT),
    may("checksum", TEXT),
    may("checksum-algorithm", Kind::OneOf(&["md5", "sha1", "sha224", "sha256", "sha384", "sha512"])),
    may("compression", TEXT),
    may("verify-certificates", BOOL),
    may("storage", TEXT),
];

impl State {
    /// `GET /nodes/{node}/storage`.
    pub(super) fn list_storages(&self, caller: &Caller, call: &Call, node: &str) -> Outcome {
        let own = [
            may("content", TEXT),
            may("storage", TEXT),
            may("enabled", BOOL),
            may("target", TEXT),
            may("format", BOOL),
        ];
        schema::check(call, &own, false)?;
        let wanted = |name: &str, storage: &Storage| {
            let content =
                call.params.get("content").is_none_or(|c| c.split(',').any(|c| storage.content.contains(c)));
            let by_name = call.params.get("storage").is_none_or(|s| s == name);
            let enabled = !schema::truth(call.params.get("enabled")) || storage.enabled;
            content && by_name && enabled && storage.is_on(node)
        };
        let seen = self.storages.iter().filter(|(name, storage)| {
            wanted(name, storage) && self.has_any(caller, &format!("/storage/{name}"), &SEES)
        });
        Ok(seen.map(|(name, storage)| about(name, storage, node)).collect())
    }

    /// `GET /nodes/{node}/storage/{storage}/status`.
    pub(super) fn storage_status(&self, caller: &Caller, call: &Call, node: &str, name: &str) -> Outcome {
        schema::check(call, &[], false)?;
        self.need_any(caller, &format!("/storage/{name}"), &SEES)?;
        let mut told = about(name, self.storage_on(name, node)?, node);
        if let Some(members) = told.as_object_mut() {
            members.remove("storage");
            members.remove("used_fraction");
        }
        Ok(told)
    }

    /// `GET /nodes/{node}/storage/{storage}/content`.
    pub(super) fn list_content(&self, caller: &Caller, call: &Call, node: &str, name: &str) -> Outcome {
        schema::check(call, &[may("content", TEXT), may("vmid", schema::VMID)], false)?;
        self.need_any(caller, &format!("/storage/{name}"), &SEES)?;
        let storage = self.storage_on(name, node)?;
        let home = storage.home(node);
        let wanted = |v: &&Volume| {
            v.home == home
                && call.params.get("content").is_none_or(|c| *c == v.content)
                && call.params.get("vmid").is_none_or(|id| v.vmid.is_some_and(|own| own.to_string() == *id))
        };
        Ok(storage.volumes.values().filter(wanted).map(about_volume).collect())
    }

    /// `GET /nodes/{node}/storage/{storage}/content/{volume}`.
    pub(super) fn get_volume(
        &self,
        caller: &Caller,
        call: &Call,
        node: &str,
        name: &str,
        volume: &str,
    ) -> Outcome {
        schema::check(call, &[], false)?;
        self.need_any(caller, &format!("/storage/{name}"), &SEES)?;
        self.storage_on(name, node)?;
        let volid = full_id(name, volume);
        let Some(found) = self.volume(&volid, node) else {
            return Err(Refusal::died(format!("volume '{volid}' does not exist")));
        };
        let mut told = json!({ "size": found.size, "used": found.used, "format": found.format });
        told["path"] = json!(format!("/var/lib/vz/{volume}"));
        Ok(told)
    }

    /// `DELETE /nodes/{node}/storage/{storage}/content/{volume}`.
    pub(super) fn remove_content(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        name: &str,
        volume: &str,
        now: u64,
    ) -> Outcome {
        schema::check(call, &[may("delay", Kind::Integer(1, 30))], false)?;
        let storage = self.storage_on(name, node)?;
        let volid = full_id(name, volume);
        let found = storage.volumes.get(&Storage::key(&storage.home(node), &volid));
        let privilege = match found.map(|v| v.content.as_str()) {
            Some("iso" | "vztmpl" | "import" | "snippets") => "Datastore.AllocateTemplate",
            _ => "Datastore.Allocate",
        };
        self.need(caller, &format!("/storage/{name}"), &[privilege])?;
        let Some(found) = found else {
            return Err(Refusal::died(format!("unable to parse volume ID or no such volume '{volid}'")));
        };
        if let Some(owner) = found.vmid.filter(|owner| self.vms.contains_key(owner)) {
            let why = format!("cannot remove volume '{volid}', VM/CT '{owner}' still exists");
            return Err(Refusal::died(why));
        }
        let work = Work::Delete { volid: Storage::key(&found.home, &volid) };
        let id = format!("{owner}@{name}", owner = found.vmid.unwrap_or_default());
        Ok(self.begin(now, caller, node, ("imgdel", &id), work, 0.0))
    }

    /// `POST /nodes/{node}/storage/{storage}/download-url`.
    pub(super) fn download_url(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        name: &str,
        now: u64,
    ) -> Outcome {
        schema::check(call, &DOWNLOAD, false)?;
        self.need(caller, &format!("/storage/{name}"), &["Datastore.AllocateTemplate"])?;
        if self.need(caller, "/", &["Sys.Audit", "Sys.Modify"]).is_err() {
            self.need(caller, &format!("/nodes/{node}"), &["Sys.AccessNetwork"])?;
        }
        let given = |key: &str| call.params.get(key).cloned().unwrap_or_default();
        let (content, filename, url) = (given("content"), given("filename"), given("url"));
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Refusal::param("url", "value does not match the regex pattern"));
        }
        let storage = self.storage_on(name, node)?;
        if !storage.has_files() {
            return Err(Refusal::died(format!(
                "can't upload to storage type '{}', not a file based storage!",
                storage.kind
            )));
        }
        if !storage.content.contains(&content) {
            return Err(Refusal::died(format!(
                "storage '{name}' is not configured for content-type '{content}'"
            )));
        }
        let format = file_format(&content, &filename)?;
        let sha256 = wanted_sum(call)?;
        if !given("compression").is_empty() && content != "iso" {
            return Err(Refusal::died("decompression not supported for this content type"));
        }
        let volume = Volume {
            volid: format!("{name}:{content}/{filename}"),
            home: storage.home(node),
            content,
            format: format.to_string(),
            size: 0,
            used: 0,
            vmid: None,
            parent: None,
            created: now / 1000,
            system: None,
        };
        let size = self.images.iter().find(|i| i.url == url).map_or(0, |i| i.size);
        let work = Work::Download { storage: name.to_string(), volume: Box::new(volume), url, sha256 };
        let extra = Self::downloading(size);
        Ok(self.begin(now, caller, node, ("download", &filename), work, extra))
    }
}

/// The checksum that a download has to have. Only what the site's images have can be compared.
fn wanted_sum(call: &Call) -> Result<Option<String>, Refusal> {
    let (sum, algorithm) = (call.params.get("checksum"), call.params.get("checksum-algorithm"));
    match (sum, algorithm.map(String::as_str)) {
        (None, None) => Ok(None),
        (Some(sum), Some("sha256")) => Ok(Some(sum.to_ascii_lowercase())),
        (Some(_), None) => Err(Refusal::param(
            "checksum",
            "missing property - 'checksum' requires this property: checksum-algorithm",
        )),
        (None, Some(_)) => Err(Refusal::param(
            "checksum-algorithm",
            "missing property - 'checksum-algorithm' requires this property: checksum",
        )),
        (Some(_), Some(other)) => {
            Err(Refusal::died(format!("checksum algorithm '{other}' is not simulated")))
        }
    }
}

fn file_format(content: &str, filename: &str) -> Result<&'static str, Refusal> {
    if filename.is_empty() || filename.contains('/') || filename.starts_with('.') {
        return Err(Refusal::param("filename", "invalid filename or wrong extension"));
    }
    let ends = |ending: &str| filename.to_ascii_lowercase().ends_with(ending);
    let format = match content {
        "iso" if ends(".iso") || ends(".img") => Some("iso"),
        "vztmpl" if ends(".tar.gz") || ends(".tar.xz") || ends(".tar.zst") => Some("tgz"),
        "import" if ends(".qcow2") => Some("qcow2"),
        "import" if ends(".raw") => Some("raw"),
        "import" if ends(".vmdk") => Some("vmdk"),
        "import" if ends(".ova") => Some("ova"),
        _ => None,
    };
    let wrong =
        if content == "import" { "invalid filename or wrong extension" } else { "wrong file extension" };
    format.ok_or_else(|| Refusal::param("filename", wrong))
}

/// A volume may be named with or without its storage.
fn full_id(storage: &str, volume: &str) -> String {
    if volume.starts_with(&format!("{storage}:")) {
        volume.to_string()
    } else {
        format!("{storage}:{volume}")
    }
}

#[allow(clippy::cast_precision_loss, reason = "a fraction for people")]
fn about(name: &str, storage: &Storage, node: &str) -> Value {
    let used = storage.used(node);
    json!({
        "storage": name,
        "type": storage.kind,
        "content": storage.content.iter().cloned().collect::<Vec<_>>().join(","),
        "active": u8::from(storage.enabled),
        "enabled": u8::from(storage.enabled),
        "shared": u8::from(storage.shared),
        "total": storage.total,
        "used": used,
        "avail": storage.total.saturating_sub(used),
        "used_fraction": if storage.total == 0 { 0.0 } else { used as f64 / storage.total as f64 },
    })
}

fn about_volume(volume: &Volume) -> Value {
    let mut told = json!({
        "volid": volume.volid,
        "content": volume.content,
        "format": volume.format,
        "size": volume.size,
        "ctime": volume.created,
    });
    if let Some(vmid) = volume.vmid {
        told["vmid"] = json!(vmid);
    }
    if let Some(parent) = &volume.parent {
        told["parent"] = json!(parent.split_once(':').map_or(parent.as_str(), |(_, name)| name));
    }
    told
}
