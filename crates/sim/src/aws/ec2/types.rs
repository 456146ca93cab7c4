//! What an instance type has. The vendor's naming is regular enough to compute it.

use crate::aws::input::{Filters, paged, text, texts};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::state::State;
use serde_json::{Value, json};

/// Types that a describing call lists when nobody names any.
const LISTED: [&str; 14] = [
    "t3.small",
    "t3.medium",
    "t3.large",
    "t3.xlarge",
    "t3.2xlarge",
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
    "m5.4xlarge",
    "c5.large",
    "c5.xlarge",
    "c5.2xlarge",
    "r5.large",
    "r5.xlarge",
];

/// Virtual CPUs and memory in MiB; `None` for a name of another form.
pub(in crate::aws) fn capacity(kind: &str) -> Option<(u32, u64)> {
    let (family, size) = kind.split_once('.')?;
    let mut letters = family.chars();
    let class = letters.next()?;
    let generation = letters.next()?;
    if !generation.is_ascii_digit() {
        return None;
    }
    if class == 't' {
        let cpus = match size {
            "nano" | "micro" | "small" | "medium" | "large" => 2,
            "xlarge" => 4,
            "2xlarge" => 8,
            _ => return None,
        };
        let memory = match size {
            "nano" => 512,
            "micro" => 1024,
            "small" => 2048,
            "medium" => 4096,
            "large" => 8192,
            "xlarge" => 16_384,
            _ => 32_768,
        };
        return Some((cpus, memory));
    }
    let gib_per_cpu = match class {
        'c' => 2,
        'r' | 'x' => 8,
        // Right for general purpose, and near enough for the rest.
        _ => 4,
    };
    let cpus = match size {
        "medium" => 1,
        "large" => 2,
        "xlarge" => 4,
        other => other.strip_suffix("xlarge")?.parse::<u32>().ok()?.checked_mul(4)?,
    };
    Some((cpus, u64::from(cpus) * gib_per_cpu * 1024))
}

/// Families with a `g` behind their generation are ARM.
pub(in crate::aws) fn architecture(kind: &str) -> &'static str {
    let family = kind.split('.').next().unwrap_or_default();
    if family.chars().skip(1).any(|letter| letter == 'g') { "arm64" } else { "x86_64" }
}

impl State {
    pub(in crate::aws) fn describe_instance_types(&self, input: &Value) -> Outcome {
        let filters = Filters::read(
            input,
            &["instance-type", "vcpu-info.default-vcpus", "memory-info.size-in-mib", "current-generation"],
        )?;
        let named = texts(input, "InstanceTypes");
        let kinds = if named.is_empty() { LISTED.map(ToString::to_string).to_vec() } else { named };
        let mut told = Vec::new();
        for kind in kinds {
            let Some((cpus, memory)) = capacity(&kind) else {
                let why = format!("The following supplied instance types do not exist: [{kind}]");
                return Err(Refusal::new("InvalidInstanceType", why));
            };
            let of = |name: &str| match name {
                "instance-type" => vec![kind.clone()],
                "vcpu-info.default-vcpus" => vec![cpus.to_string()],
                "memory-info.size-in-mib" => vec![memory.to_string()],
                _ => vec!["true".to_string()],
            };
            if filters.fit(&Default::default(), of) {
                told.push(json!({
                    "InstanceType": kind, "CurrentGeneration": true, "BareMetal": false,
                    "VCpuInfo": { "DefaultVCpus": cpus }, "MemoryInfo": { "SizeInMiB": memory },
                    "ProcessorInfo": { "SupportedArchitectures": [architecture(&kind)] },
                }));
            }
        }
        Ok(paged("InstanceTypes", told, input))
    }

    pub(in crate::aws) fn describe_offerings(&self, input: &Value) -> Outcome {
        let filters = Filters::read(input, &["instance-type", "location"])?;
        let by_zone = text(input, "LocationType").unwrap_or("region") != "region";
        let locations = if by_zone { self.zones() } else { vec![self.region.clone()] };
        let mut told = Vec::new();
        // Whoever asks by name gets an answer for that name, if there is such a type at all.
        let asked = super::super::input::list(input, "Filters");
        let asked = asked.iter().filter(|f| f["Name"] == "instance-type").flat_map(|f| texts(f, "Values"));
        let mut kinds: Vec<String> = LISTED.map(ToString::to_string).to_vec();
        kinds.extend(asked.filter(|kind| capacity(kind).is_some()));
        kinds.sort();
        kinds.dedup();
        for kind in kinds {
            for location in &locations {
                let of = |name: &str| vec![if name == "location" { location.clone() } else { kind.clone() }];
                if filters.fit(&Default::default(), of) {
                    let how = if by_zone { "availability-zone" } else { "region" };
                    told.push(json!({ "InstanceType": kind, "LocationType": how, "Location": location }));
                }
            }
        }
        Ok(paged("InstanceTypeOfferings", told, input))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_of_well_known_types() {
        assert_eq!(capacity("t3.medium"), Some((2, 4096)));
        assert_eq!(capacity("m5.xlarge"), Some((4, 16_384)));
        assert_eq!(capacity("c6i.4xlarge"), Some((16, 32_768)));
        assert_eq!(capacity("r5.large"), Some((2, 16_384)));
        assert_eq!(capacity("m7g.medium"), Some((1, 4096)));
        assert_eq!(capacity("u-6tb1.metal"), None);
        assert_eq!(architecture("m6g.large"), "arm64");
        assert_eq!(architecture("m6i.large"), "x86_64");
    }
}
