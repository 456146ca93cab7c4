//! Machine types: how many CPUs and how much memory their names mean.

/// CPUs and memory in MiB of a type, if there is one of that name; else why not.
pub(super) fn parse(name: &str) -> Result<(u32, u32), String> {
    let parts: Vec<&str> = name.split('-').collect();
    match parts[..] {
        ["custom", cpus, memory] => custom("n1", cpus, memory),
        [family @ ("n1" | "n2" | "n2d" | "e2" | "n4"), "custom", cpus, memory] => {
            custom(family, cpus, memory)
        }
        ["e2", "micro"] => Ok((2, 1024)),
        ["e2", "small"] => Ok((2, 2048)),
        ["e2", "medium"] => Ok((2, 4096)),
        [family, class, cpus] => predefined(family, class, cpus),
        _ => Err(format!("There is no machine type {name}.")),
    }
}

fn predefined(family: &str, class: &str, cpus: &str) -> Result<(u32, u32), String> {
    let missing = || format!("There is no machine type {family}-{class}-{cpus}.");
    let sizes: &[u32] = match family {
        "e2" => &[2, 4, 8, 16, 32],
        "n1" => &[1, 2, 4, 8, 16, 32, 64, 96],
        "n2" | "n2d" | "c3" | "n4" => &[2, 4, 8, 16, 32, 48, 64, 80],
        _ => return Err(missing()),
    };
    let per_cpu = match (family, class) {
        ("n1", "standard") => 3840,
        (_, "standard") => 4096,
        ("n1", "highmem") => 6656,
        (_, "highmem") => 8192,
        (_, "highcpu") => 1024,
        _ => return Err(missing()),
    };
    let cpus: u32 = cpus.parse().map_err(|_| missing())?;
    if sizes.contains(&cpus) { Ok((cpus, cpus * per_cpu)) } else { Err(missing()) }
}

/// The rules of Google's documentation: even numbers of CPUs, whole quarters of a GiB, and bounds for each CPU.
fn custom(family: &str, cpus: &str, memory: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text} is no number."));
    let (cpus, memory) = (number(cpus)?, number(memory)?);
    let (least, most, largest, one) = match family {
        "e2" => (512, 8192, 32, false),
        "n1" => (922, 6656, 96, true),
        _ => (512, 8192, 128, false),
    };
    if cpus == 0 || cpus > largest || !(cpus.is_multiple_of(2) || one && cpus == 1) {
        return Err(format!("Number of CPUs must be even and at most {largest}, and is {cpus}."));
    }
    if !memory.is_multiple_of(256) {
        return Err(format!("Memory must be a multiple of 256 MiB, and is {memory}."));
    }
    if memory < cpus * least || memory > cpus * most {
        return Err(format!(
            "Memory must be between {least} and {most} MiB for each CPU, and is {memory} MiB for {cpus}."
        ));
    }
    Ok((cpus, memory))
}

/// The quota that CPUs of a type count against.
pub(super) fn metric(name: &str) -> &'static str {
    match name.split('-').next() {
        Some("n2") => "N2_CPUS",
        Some("n2d") => "N2D_CPUS",
        Some("c3") => "C3_CPUS",
        _ => "CPUS",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_sizes_and_custom_ones_have_rules() {
        assert_eq!(parse("e2-standard-4"), Ok((4, 16384)));
        assert_eq!(parse("n1-highmem-2"), Ok((2, 13312)));
        assert_eq!(parse("custom-1-3072"), Ok((1, 3072)));
        assert_eq!(parse("e2-custom-4-16384"), Ok((4, 16384)));
        for bad in [
            "e2-standard-3",
            "custom-3-8192",
            "e2-custom-1-4096",
            "custom-2-8100",
            "n2-custom-2-65536",
            "huge",
            "x-standard-4",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!((metric("n2-custom-2-4096"), metric("custom-2-4096")), ("N2_CPUS", "CPUS"));
    }
}
