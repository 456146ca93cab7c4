//! The AWS part of a ProviderConfig, parsed once, and the choices that follow from it alone: subnet, size, image, names.

use super::client::{Params, param};
use crate::failure::{Class, Failure};
use crate::seam::MachineWanted;
use butler_api::names::with_suffix;
use butler_api::{AwsConfig, ProviderConfigSpec};

/// The account that Talos' makers publish images from.
const TALOS_MAKERS: &str = "540036508848";

/// Where things go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) region: String,
    pub(crate) vpc: Option<String>,
    pub(crate) subnets: Vec<String>,
    pub(crate) balancer_subnets: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) ami: Option<String>,
    pub(crate) ami_owner: Option<String>,
    pub(crate) public_address: bool,
    pub(crate) instance_profile: Option<String>,
    pub(crate) volume_type: String,
    pub(crate) encrypt: Option<bool>,
}

/// What a machine boots from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageChoice {
    Id(String),
    /// The newest of that name. Only accounts that are named count: anybody can publish an image of any name.
    Named {
        name: String,
        owners: Vec<String>,
    },
}

/// Instance types that sizes are chosen from: two-threaded Intel machines of the sixth generation, which every region has.
/// Per virtual CPU: memory in MiB, and about how many hundredths of a cent an hour costs, which decides between types that fit.
const FAMILIES: [(&str, u32, u32); 3] = [("c6i", 2048, 425), ("m6i", 4096, 480), ("r6i", 8192, 630)];

/// Sizes of each family and their virtual CPUs.
const SIZES: [(&str, u32); 9] = [
    ("large", 2),
    ("xlarge", 4),
    ("2xlarge", 8),
    ("4xlarge", 16),
    ("8xlarge", 32),
    ("12xlarge", 48),
    ("16xlarge", 64),
    ("24xlarge", 96),
    ("32xlarge", 128),
];

fn invalid(reason: &str, message: impl Into<String>, remedy: &str) -> Failure {
    Failure::new(Class::InvalidConfig, reason, message, remedy)
}

impl Settings {
    pub(crate) fn read(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        let Some(block) = &config.aws else {
            let message = "the ProviderConfig has no block aws";
            return Err(invalid("BlockMissing", message, "add the block with region, vpcID and subnetIDs"));
        };
        let plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if block.region.is_empty() || !plain(&block.region) {
            let message = format!("the block aws names no region: {:?}", block.region);
            return Err(invalid("SettingsMissing", message, "name one, such as eu-west-1"));
        }
        Ok(Self::of(block))
    }

    fn of(block: &AwsConfig) -> Self {
        let balancer_subnets = match block.load_balancer_subnet_ids.is_empty() {
            true => block.subnet_ids.clone(),
            false => block.load_balancer_subnet_ids.clone(),
        };
        Self {
            region: block.region.clone(),
            vpc: block.vpc_id.clone(),
            subnets: block.subnet_ids.clone(),
            balancer_subnets,
            groups: block.security_group_ids.clone(),
            instance_type: block.instance_type.clone(),
            ami: block.ami.clone(),
            ami_owner: block.ami_owner.clone(),
            public_address: block.public_ip.unwrap_or(true),
            instance_profile: block.instance_profile.clone(),
            volume_type: block.volume_type.clone().unwrap_or_else(|| "gp3".to_owned()),
            encrypt: block.encrypt_volumes,
        }
    }

    /// The subnet of a machine: by its number, so that the machines of a role are spread.
    pub(crate) fn place(&self, name: &str) -> Option<&str> {
        let count = self.subnets.len();
        (count > 0).then(|| self.subnets[number_of(name) % count].as_str())
    }

    /// The instance type of a machine.
    pub(crate) fn size(&self, wanted: &MachineWanted) -> Result<String, Failure> {
        if let Some(given) = &self.instance_type {
            return Ok(given.clone());
        }
        smallest(wanted.cpu, wanted.memory_mb).ok_or_else(|| {
            invalid(
                "NoInstanceType",
                format!(
                    "{}: no instance type is known with {} CPUs and {} MiB",
                    wanted.name, wanted.cpu, wanted.memory_mb
                ),
                "ask for less, or name an instanceType in the ProviderConfig",
            )
        })
    }

    /// What a machine boots from.
    pub(crate) fn image(&self, wanted: &MachineWanted) -> Result<ImageChoice, Failure> {
        let Some(text) = wanted.image.as_ref().or(self.ami.as_ref()).filter(|text| !text.is_empty()) else {
            return Err(invalid(
                "ImageMissing",
                format!("{}: neither the machine nor the ProviderConfig names an image", wanted.name),
                "set ami in the ProviderConfig to an AMI id of this region, or to a name such as talos-v1.12.2-eu-west-1-amd64",
            ));
        };
        if text.starts_with("ami-") {
            return Ok(ImageChoice::Id(text.clone()));
        }
        let owners = match &self.ami_owner {
            Some(owner) => vec![owner.clone()],
            None => vec!["self".to_owned(), TALOS_MAKERS.to_owned()],
        };
        Ok(ImageChoice::Named { name: text.clone(), owners })
    }
}

impl ImageChoice {
    /// How it is looked for.
    pub(crate) fn query(&self, architecture: &str) -> Params {
        match self {
            ImageChoice::Id(id) => vec![param("ImageId.1", id)],
            ImageChoice::Named { name, owners } => {
                let owners = owners.iter().map(String::as_str);
                let mut params = super::client::numbered("Owner", owners);
                for (index, (filter, value)) in
                    [("name", name.as_str()), ("state", "available"), ("architecture", architecture)]
                        .iter()
                        .enumerate()
                {
                    params.push(param(format!("Filter.{}.Name", index + 1), *filter));
                    params.push(param(format!("Filter.{}.Value.1", index + 1), *value));
                }
                params
            }
        }
    }

    pub(crate) fn shown(&self) -> &str {
        match self {
            ImageChoice::Id(id) => id,
            ImageChoice::Named { name, .. } => name,
        }
    }
}

/// The cheapest type that has so much.
fn smallest(cpu: u32, memory_mb: u32) -> Option<String> {
    let all = FAMILIES.iter().flat_map(|(family, per_cpu, price)| {
        SIZES
            .iter()
            .map(move |(size, cpus)| (cpus * price, cpus * per_cpu, *cpus, format!("{family}.{size}")))
    });
    let fits = all.filter(|(_, memory, cpus, _)| *cpus >= cpu && *memory >= memory_mb);
    fits.min().map(|(_, _, _, name)| name)
}

/// The architecture of an instance type: a `g` behind the generation stands for Arm.
pub(crate) fn architecture(instance_type: &str) -> &'static str {
    let family = instance_type.split('.').next().unwrap_or_default();
    let behind = family.trim_start_matches(|c: char| c.is_ascii_lowercase());
    if behind.contains('g') || family.starts_with("a1") { "arm64" } else { "x86_64" }
}

/// Virtual CPUs of an instance type, by its size; `None` for types that count to another quota than the standard one.
pub(crate) fn virtual_cpus(instance_type: &str) -> Option<u32> {
    let (family, size) = instance_type.split_once('.')?;
    let letters: String = family.chars().take_while(char::is_ascii_lowercase).collect();
    let standard = letters.len() <= 2 && letters.starts_with(['a', 'c', 'd', 'h', 'i', 'm', 'r', 't', 'z']);
    let cpus = match size.strip_suffix("xlarge") {
        Some("") => 4,
        Some(times) => 4 * times.trim_end_matches('-').parse::<u32>().ok()?,
        None if size.starts_with("metal") => 96,
        None => 2,
    };
    standard.then_some(cpus)
}

/// The number at the end of a machine's name; a hash where there is none.
fn number_of(name: &str) -> usize {
    let tail = name.rsplit('-').next().unwrap_or_default();
    tail.parse().unwrap_or_else(|_| {
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash as usize % 1000
    })
}

/// What the names of a cluster's load balancer, target groups and security group begin with. Load balancers and target groups
/// have 32 characters, of which two ports take up to 12, and may not begin with `internal-`.
pub(crate) fn stem(cluster: &str) -> String {
    let stem = with_suffix(cluster, "", 18);
    if stem.starts_with("internal-") { with_suffix(&format!("b-{cluster}"), "", 18) } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_smallest_that_fit() {
        assert_eq!(smallest(4, 16384).as_deref(), Some("m6i.xlarge"));
        assert_eq!(smallest(4, 8192).as_deref(), Some("c6i.xlarge"));
        assert_eq!(smallest(2, 16384).as_deref(), Some("r6i.large"));
        assert_eq!(smallest(1, 1024).as_deref(), Some("c6i.large"));
        assert_eq!(smallest(4, 20000).as_deref(), Some("r6i.xlarge"));
        assert_eq!(smallest(500, 1), None);
    }

    #[test]
    fn names_fit_into_what_aws_allows() {
        assert_eq!(stem("mgmt"), "mgmt");
        let long = stem("a-very-long-cluster-name-that-goes-on-and-on");
        assert!(long.len() <= 18 && long.starts_with("a-very-lo"), "{long}");
        assert_ne!(long, stem("a-very-long-cluster-name-that-goes-on-and-off"));
        assert!(stem("internal-mgmt").starts_with("b-internal"), "{}", stem("internal-mgmt"));
        for cluster in [
            "x",
            "internal-something-long-indeed",
            "b",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            let name = format!("{}-65535-65535", stem(cluster));
            assert!(name.len() <= 32 && !name.starts_with('-') && !name.starts_with("internal-"), "{name}");
        }
    }

    #[test]
    fn architectures_follow_types() {
        assert_eq!(architecture("m6i.xlarge"), "x86_64");
        assert_eq!(architecture("m7g.large"), "arm64");
        assert_eq!(architecture("c6gn.large"), "arm64");
        assert_eq!(architecture("g5.xlarge"), "x86_64");
        assert_eq!(architecture("t4g.small"), "arm64");
    }

    #[test]
    fn virtual_cpus_follow_sizes() {
        assert_eq!(virtual_cpus("m6i.xlarge"), Some(4));
        assert_eq!(virtual_cpus("c6i.32xlarge"), Some(128));
        assert_eq!(virtual_cpus("t3.medium"), Some(2));
        assert_eq!(virtual_cpus("p4d.24xlarge"), None, "graphics have a quota of their own");
        // Every type that is chosen from has as many as the table says.
        for (size, cpus) in SIZES {
            assert_eq!(virtual_cpus(&format!("m6i.{size}")), Some(cpus));
        }
    }

    #[test]
    fn machines_are_spread_by_number() {
        let block = AwsConfig {
            region: "eu-west-1".to_owned(),
            subnet_ids: ["a", "b", "c"].map(str::to_owned).to_vec(),
            ..AwsConfig::default()
        };
        let settings = Settings::of(&block);
        let places: Vec<_> = (0..4).map(|n| settings.place(&format!("m-cp-{n}")).unwrap()).collect();
        assert_eq!(places, ["a", "b", "c", "a"]);
        assert_eq!(settings.balancer_subnets, settings.subnets);
    }
}
