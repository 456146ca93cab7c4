//! Names and types of parameters, checked as Proxmox checks them: all problems at once, each under its name.

use super::request::{Call, Refusal};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a value has to look like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Text,
    /// With a smallest and a largest value.
    Integer(i64, i64),
    Number,
    Bool,
    OneOf(&'static [&'static str]),
    /// A DNS name.
    Name,
    /// The id of a virtual machine.
    Vmid,
    Tags,
    Drive,
    Net,
    IpConfig,
    /// `+10G` or `32G`.
    Size,
}

/// A parameter of one endpoint.
pub(super) struct Param(pub(super) &'static str, pub(super) Kind, pub(super) bool);

/// Required, and not.
pub(super) const fn must(name: &'static str, kind: Kind) -> Param {
    Param(name, kind, true)
}

pub(super) const fn may(name: &'static str, kind: Kind) -> Param {
    Param(name, kind, false)
}

pub(super) const TEXT: Kind = Kind::Text;
pub(super) const BOOL: Kind = Kind::Bool;
pub(super) const VMID: Kind = Kind::Vmid;
pub(super) const FORMAT: Kind = Kind::OneOf(&["raw", "qcow2", "vmdk"]);

/// Options of a virtual machine's configuration: name, type, and the privilege that a change of it needs.
const OPTIONS: &[(&str, Kind, &str)] = &[
    ("acpi", BOOL, "VM.Config.HWType"),
    ("agent", TEXT, "VM.Config.Options"),
    ("arch", Kind::OneOf(&["x86_64", "aarch64"]), "root"),
    ("args", TEXT, "root"),
    ("autostart", BOOL, "VM.Config.Options"),
    ("balloon", Kind::Integer(0, i64::MAX), "VM.Config.Memory"),
    ("bios", Kind::OneOf(&["seabios", "ovmf"]), "VM.Config.Options"),
    ("boot", TEXT, "VM.Config.Options"),
    ("bootdisk", TEXT, "VM.Config.Disk"),
    ("cicustom", TEXT, "VM.Config.Cloudinit"),
    ("cipassword", TEXT, "VM.Config.Cloudinit"),
    ("citype", Kind::OneOf(&["configdrive2", "nocloud", "opennebula"]), "VM.Config.Cloudinit"),
    ("ciupgrade", BOOL, "VM.Config.Cloudinit"),
    ("ciuser", TEXT, "VM.Config.Cloudinit"),
    ("cores", Kind::Integer(1, i64::MAX), "VM.Config.CPU"),
    ("cpu", TEXT, "VM.Config.CPU"),
    ("cpulimit", Kind::Number, "VM.Config.CPU"),
    ("cpuunits", Kind::Integer(1, 262_144), "VM.Config.CPU"),
    ("description", TEXT, "VM.Config.Options"),
    ("efidisk0", Kind::Drive, "VM.Config.Disk"),
    ("hookscript", TEXT, "root"),
    ("hotplug", TEXT, "VM.Config.Options"),
    ("hugepages", Kind::OneOf(&["any", "2", "1024"]), "VM.Config.Memory"),
    ("keyboard", TEXT, "VM.Config.HWType"),
    ("kvm", BOOL, "VM.Config.HWType"),
    ("localtime", BOOL, "VM.Config.Options"),
    ("machine", TEXT, "VM.Config.HWType"),
    ("memory", Kind::Integer(16, i64::MAX), "VM.Config.Memory"),
    ("name", Kind::Name, "VM.Config.Options"),
    ("nameserver", TEXT, "VM.Config.Cloudinit"),
    ("numa", BOOL, "VM.Config.Memory"),
    ("onboot", BOOL, "VM.Config.Options"),
    (
        "ostype",
        Kind::OneOf(&[
            "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26",
            "solaris",
        ]),
        "VM.Config.Options",
    ),
    ("protection", BOOL, "VM.Config.Options"),
    ("reboot", BOOL, "VM.Config.Options"),
    ("rng0", TEXT, "VM.Config.HWType"),
    (
        "scsihw",
        Kind::OneOf(&["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"]),
        "VM.Config.HWType",
    ),
    ("searchdomain", TEXT, "VM.Config.Cloudinit"),
    ("shares", Kind::Integer(0, 50_000), "VM.Config.Memory"),
    ("smbios1", TEXT, "VM.Config.HWType"),
    ("sockets", Kind::Integer(1, i64::MAX), "VM.Config.CPU"),
    ("sshkeys", TEXT, "VM.Config.Cloudinit"),
    ("startdate", TEXT, "VM.Config.Options"),
    ("startup", TEXT, "VM.Config.Options"),
    ("tablet", BOOL, "VM.Config.Options"),
    ("tags", Kind::Tags, "VM.Config.Options"),
    ("tdf", BOOL, "VM.Config.Options"),
    ("template", BOOL, "VM.Allocate"),
    ("tpmstate0", Kind::Drive, "VM.Config.Disk"),
    ("vcpus", Kind::Integer(1, i64::MAX), "VM.Config.CPU"),
    ("vga", TEXT, "VM.Config.HWType"),
    ("vmgenid", TEXT, "VM.Config.Options"),
    ("vmstatestorage", TEXT, "VM.Config.Disk"),
    ("watchdog", TEXT, "VM.Config.HWType"),
];

/// Options that are there several times: prefix, how many, type, privilege.
const NUMBERED: &[(&str, u32, Kind, &str)] = &[
    ("scsi", 31, Kind::Drive, "VM.Config.Disk"),
    ("virtio", 16, Kind::Drive, "VM.Config.Disk"),
    ("ide", 4, Kind::Drive, "VM.Config.Disk"),
    ("sata", 6, Kind::Drive, "VM.Config.Disk"),
    ("unused", 256, TEXT, "VM.Config.Disk"),
    ("net", 32, Kind::Net, "VM.Config.Network"),
    ("ipconfig", 32, Kind::IpConfig, "VM.Config.Network"),
    ("serial", 4, TEXT, "VM.Config.HWType"),
    ("usb", 14, TEXT, "root"),
    ("hostpci", 16, TEXT, "root"),
    ("numa", 8, TEXT, "VM.Config.HWType"),
    ("parallel", 3, TEXT, "root"),
];

/// The type of a configuration option and the privilege for it, if there is such an option.
pub(super) fn option(name: &str) -> Option<(Kind, &'static str)> {
    if let Some((_, kind, privilege)) = OPTIONS.iter().find(|(known, ..)| *known == name) {
        return Some((*kind, privilege));
    }
    NUMBERED.iter().find_map(|(prefix, count, kind, privilege)| {
        let digits = name.strip_prefix(prefix)?;
        let canonical = digits == "0" || !digits.starts_with('0');
        let number: u32 = digits.parse().ok()?;
        (canonical && number < *count).then_some((*kind, *privilege))
    })
}

/// Whether an option is a disk or CD drive, and can be given a volume.
pub(super) fn is_drive(name: &str) -> bool {
    matches!(option(name), Some((Kind::Drive, _)))
}

/// Checks a call's parameters. With `options`, those of the configuration are allowed beside the endpoint's own.
pub(super) fn check(call: &Call, own: &[Param], options: bool) -> Result<(), Refusal> {
    let mut errors = BTreeMap::new();
    for (name, value) in &call.params {
        // What the path says already may be said again.
        let known = own.iter().find(|p| p.0 == name).map(|p| p.1);
        let kind = known
            .or_else(|| options.then(|| option(name)).flatten().map(|(kind, _)| kind))
            .or_else(|| matches!(name.as_str(), "node" | "vmid").then_some(TEXT));
        let wrong = match kind {
            Some(kind) => wrong(kind, value),
            None => Some(
                "property is not defined in schema and the schema does not allow additional properties"
                    .to_string(),
            ),
        };
        if let Some(wrong) = wrong {
            errors.insert(name.clone(), wrong);
        }
    }
    for Param(name, _, required) in own {
        if *required && !call.params.contains_key(*name) {
            errors.insert((*name).to_string(), "property is missing and it is not optional".to_string());
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Refusal::params(errors)) }
}

/// What is wrong with a value, in Proxmox' words.
fn wrong(kind: Kind, value: &str) -> Option<String> {
    match kind {
        Kind::Text => None,
        Kind::Integer(least, most) => wrong_integer(value, least, most),
        Kind::Number => {
            value.parse::<f64>().is_err().then(|| format!("type check ('number') failed - got '{value}'"))
        }
        Kind::Bool => (!matches!(value, "0" | "1" | "on" | "off" | "yes" | "no" | "true" | "false"))
            .then(|| format!("type check ('boolean') failed - got '{value}'")),
        Kind::OneOf(known) => (!known.contains(&value)).then(|| {
            format!("value '{value}' does not have a value in the enumeration '{}'", known.join(", "))
        }),
        Kind::Name => (!is_dns_name(value))
            .then(|| "invalid format - value does not look like a valid DNS name\n".to_string()),
        Kind::Vmid => wrong_integer(value, 100, 999_999_999),
        Kind::Tags => wrong_tags(value),
        Kind::Drive => wrong_drive(value),
        Kind::Net => wrong_net(value),
        Kind::IpConfig => wrong_ipconfig(value),
        Kind::Size => parse_size(value.trim_start_matches('+'))
            .is_none()
            .then(|| "value does not match the regex pattern".to_string()),
    }
}

fn wrong_integer(value: &str, least: i64, most: i64) -> Option<String> {
    match value.parse::<i64>() {
        Err(_) => Some(format!("type check ('integer') failed - got '{value}'")),
        Ok(number) if number < least => Some(format!("value must have a minimum value of {least}")),
        Ok(number) if number > most => Some(format!("value must have a maximum value of {most}")),
        Ok(_) => None,
    }
}

pub(super) fn is_dns_name(value: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    !value.is_empty() && value.split('.').all(label)
}

fn wrong_tags(value: &str) -> Option<String> {
    let good = |tag: &str| {
        let mut letters = tag.bytes();
        let first = letters.next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        first && letters.all(|b| b.is_ascii_alphanumeric() || b"_-+.".contains(&b))
    };
    value
        .split([';', ',', ' '])
        .filter(|tag| !tag.is_empty())
        .find(|tag| !good(tag))
        .map(|tag| format!("invalid format - invalid characters in tag '{tag}'\n"))
}

const DRIVE_OPTIONS: &[&str] = &[
    "aio",
    "backup",
    "bps",
    "bps_rd",
    "bps_wr",
    "cache",
    "detect_zeroes",
    "discard",
    "efitype",
    "file",
    "format",
    "import-from",
    "iops",
    "iops_rd",
    "iops_wr",
    "iothread",
    "mbps",
    "mbps_rd",
    "mbps_wr",
    "media",
    "model",
    "pre-enrolled-keys",
    "product",
    "queues",
    "replicate",
    "rerror",
    "ro",
    "scsiblock",
    "serial",
    "shared",
    "size",
    "snapshot",
    "ssd",
    "vendor",
    "version",
    "werror",
    "wwn",
];

fn wrong_drive(value: &str) -> Option<String> {
    let mut parts = value.split(',');
    let first = parts.next().unwrap_or_default();
    let volume = first.strip_prefix("file=").unwrap_or(first);
    if volume.is_empty() || volume.contains('=') {
        return Some(
            "invalid format - format error\nfile: property is missing and it is not optional\n".to_string(),
        );
    }
    for part in parts {
        let key = part.split_once('=').map_or(part, |(key, _)| key);
        if !DRIVE_OPTIONS.contains(&key) {
            return Some(format!(
                "invalid format - format error\n{key}: property is not defined in schema and the schema does not allow additional properties\n"
            ));
        }
    }
    None
}

const MODELS: &[&str] = &[
    "e1000", "e1000e", "i82551", "i82557b", "i82559er", "ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio",
    "vmxnet3",
];
const NET_OPTIONS: &[&str] =
    &["bridge", "firewall", "link_down", "macaddr", "model", "mtu", "queues", "rate", "tag", "trunks"];

fn wrong_net(value: &str) -> Option<String> {
    let mut model = false;
    for part in value.split(',') {
        let key = part.split_once('=').map_or(part, |(key, _)| key);
        if MODELS.contains(&key) || key == "model" {
            model = true;
        } else if !NET_OPTIONS.contains(&key) {
            return Some(format!(
                "invalid format - format error\n{key}: property is not defined in schema and the schema does not allow additional properties\n"
            ));
        }
    }
    (!model).then(|| {
        "invalid format - format error\nmodel: property is missing and it is not optional\n".to_string()
    })
}

fn wrong_ipconfig(value: &str) -> Option<String> {
    let problem = |text: String| Some(format!("invalid format - format error\n{text}\n"));
    for part in value.split(',') {
        let (key, given) = part.split_once('=').unwrap_or((part, ""));
        let fine = match key {
            "ip" => given == "dhcp" || cidr(given).is_some_and(|(a, _)| a.is_ipv4()),
            "ip6" => matches!(given, "auto" | "dhcp") || cidr(given).is_some_and(|(a, _)| a.is_ipv6()),
            "gw" => given.parse::<IpAddr>().is_ok_and(|a| a.is_ipv4()),
            "gw6" => given.parse::<IpAddr>().is_ok_and(|a| a.is_ipv6()),
            _ => {
                return problem(format!(
                    "{key}: property is not defined in schema and the schema does not allow additional properties"
                ));
            }
        };
        if !fine {
            let what = match key {
                "ip" => "a valid IPv4 network configuration",
                "ip6" => "a valid IPv6 network configuration",
                "gw" => "a valid IPv4 address",
                _ => "a valid IPv6 address",
            };
            return problem(format!("{key}: invalid format - value does not look like {what}"));
        }
    }
    if value.contains("gw=") && !value.contains("ip=") {
        return problem("gw: missing property - 'gw' requires this property: ip".to_string());
    }
    None
}

/// `10.40.0.11/24`.
pub(super) fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// Bytes of `10G`, `512M`, `8192K`, `1T` or a plain number.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let number: f64 = digits.parse().ok()?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "checked below"
    )]
    let bytes = (number * (1_u64 << shift) as f64) as u64;
    (0.0..1e15).contains(&number).then_some(bytes)
}

/// A size as Proxmox writes it: the largest unit that divides it.
pub(super) fn print_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        // Terabytes only when there are no odd gigabytes.
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// `1` for every way to say yes.
pub(super) fn truth(value: Option<&String>) -> bool {
    value.is_some_and(|v| matches!(v.as_str(), "1" | "on" | "yes" | "true"))
}
