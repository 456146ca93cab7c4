//! The disk of a simulated machine, and whether a configuration's install selector finds it.
//!
//! There is one disk. Volumes on others are taken, as a real node takes them, and the answer to the apply says that
//! they will stay without a disk.

use crate::config::ConfigError;
use serde_json::Value;

pub(crate) const DEVICE: &str = "/dev/sda";
pub(crate) const NAME: &str = "sda";
pub(crate) const SIZE: u64 = 128 << 30;
pub(crate) const MODEL: &str = "SIMULATED";
pub(crate) const MODALIAS: &str = "scsi:t-0x00";
pub(crate) const BUS_PATH: &str = "/pci0000:00/0000:00:05.0/virtio1/host2/target2:0:0/2:0:0:0";

/// The check that a real node makes when it takes a configuration: an install selector has to match a disk.
///
/// # Errors
/// In Talos' words when nothing matches, and by name when the simulation can't tell.
pub(crate) fn check_install(main: &Value) -> Result<(), ConfigError> {
    let Some(selector) = main.pointer("/machine/install/diskSelector").and_then(Value::as_object) else {
        return Ok(());
    };
    for (key, value) in selector {
        let wanted = value.as_str().unwrap_or_default();
        let matches = match key.as_str() {
            _ if wanted.is_empty() => true,
            "size" => size_matches(wanted),
            "model" => glob(wanted, MODEL),
            "modalias" => glob(wanted, MODALIAS),
            "busPath" => glob(wanted, BUS_PATH),
            "type" => wanted == "ssd",
            // The disk has neither.
            "uuid" | "wwid" => glob(wanted, ""),
            other => {
                let why = format!("simulated node: a disk selector by {other} is not simulated");
                return Err(ConfigError::Runtime(why));
            }
        };
        if !matches {
            let why = format!("no disks matched the expression: {key} {wanted:?}");
            return Err(ConfigError::Runtime(why));
        }
    }
    Ok(())
}

/// What is to be said of volumes: which of them the simulation does nothing about.
pub(crate) fn about_volumes(documents: &[Value]) -> Vec<String> {
    let kinds = ["UserVolumeConfig", "RawVolumeConfig", "SwapVolumeConfig", "ExistingVolumeConfig"];
    let volumes = documents.iter().filter(|document| {
        document["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))
            && document["volumeType"] != "directory"
    });
    volumes
        .map(|volume| {
            let text = |key: &str| volume[key].as_str().unwrap_or_default();
            format!("simulated node: the volume {} ({}) is not simulated", text("name"), text("kind"))
        })
        .collect()
}

/// `>= 100GB`, `< 1TiB`, `137438953472`.
fn size_matches(wanted: &str) -> bool {
    let wanted = wanted.trim();
    let (op, number) = ["<=", ">=", "==", "<", ">"]
        .iter()
        .find_map(|op| Some((*op, wanted.strip_prefix(op)?)))
        .unwrap_or(("==", wanted));
    let Some(size) = bytes(number.trim()) else { return false };
    match op {
        "<=" => SIZE <= size,
        ">=" => SIZE >= size,
        "<" => SIZE < size,
        ">" => SIZE > size,
        _ => SIZE == size,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates, and is checked"
)]
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = match unit.strip_suffix('i') {
        Some(letter) => (letter, 1024_f64),
        None => (unit, 1000_f64),
    };
    let power = match letter {
        "" => 0,
        letter => 1 + ["k", "m", "g", "t", "p", "e"].iter().position(|known| *known == letter)?,
    };
    let size = number.parse::<f64>().ok()? * base.powi(i32::try_from(power).ok()?);
    size.is_finite().then_some(size as u64)
}

/// `*` stands for anything, as often as it is there.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| glob(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(selector: Value) -> Result<(), ConfigError> {
        check_install(&json!({"machine": {"install": {"diskSelector": selector}}}))
    }

    #[test]
    fn a_selector_has_to_find_the_disk() {
        for good in [
            json!({}),
            json!({"size": ">= 100GB", "type": "ssd"}),
            json!({"size": "< 129GiB"}),
            json!({"size": "137438953472"}),
            json!({"model": "SIM*", "busPath": "*virtio1*", "uuid": "*"}),
        ] {
            assert_eq!(check(good.clone()), Ok(()), "{good}");
        }
        for bad in [
            json!({"size": "> 1TB"}),
            json!({"type": "nvme"}),
            json!({"model": "Samsung*"}),
            json!({"wwid": "naa.*"}),
        ] {
            let why = check(bad.clone()).unwrap_err().to_string();
            assert!(why.starts_with("no disks matched the expression"), "{bad}: {why}");
        }
        let unknown = check(json!({"serial": "S1"})).unwrap_err().to_string();
        assert!(unknown.contains("by serial is not simulated"), "{unknown}");
        assert_eq!(check_install(&json!({"machine": {"install": {"disk": "/dev/sda"}}})), Ok(()));
    }

    #[test]
    fn volumes_without_a_disk_are_named() {
        let volume = json!({"kind": "UserVolumeConfig", "name": "longhorn"});
        let folder = json!({"kind": "UserVolumeConfig", "name": "x", "volumeType": "directory"});
        let told = about_volumes(&[json!({"machine": {}}), volume, folder]);
        assert_eq!(told, ["simulated node: the volume longhorn (UserVolumeConfig) is not simulated"]);
    }
}
