//! Words of the command line that several commands share.

use butler_api::Provider;
use std::time::Duration;

/// An infrastructure, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProviderName {
    Harvester,
    Nutanix,
    Proxmox,
    Gcp,
    Aws,
    Azure,
}

impl From<ProviderName> for Provider {
    fn from(name: ProviderName) -> Provider {
        match name {
            ProviderName::Harvester => Provider::Harvester,
            ProviderName::Nutanix => Provider::Nutanix,
            ProviderName::Proxmox => Provider::Proxmox,
            ProviderName::Gcp => Provider::Gcp,
            ProviderName::Aws => Provider::Aws,
            ProviderName::Azure => Provider::Azure,
        }
    }
}

/// A span of time: `90s`, `45m`, `1h30m`, or a number of seconds.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "a span of time is needed, such as 90s, 45m or 1h30m".to_owned();
    let mut total = Duration::ZERO;
    let mut number = String::new();
    for c in text.trim().chars() {
        let unit = match c {
            '0'..='9' | '.' => {
                number.push(c);
                continue;
            }
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86400.0,
            _ => return Err(wrong()),
        };
        total += seconds(&number, unit).ok_or_else(wrong)?;
        number.clear();
    }
    if !number.is_empty() {
        total += seconds(&number, 1.0).ok_or_else(wrong)?;
    }
    if total.is_zero() { Err(wrong()) } else { Ok(total) }
}

/// A factor that delays are scaled by.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("a number that is 0 or more is needed".to_owned()),
    }
}

fn seconds(number: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(span("0.5m"), Ok(Duration::from_secs(30)));
        assert_eq!(span("45"), Ok(Duration::from_secs(45)));
        for wrong in ["", "0", "x", "5x", "m", "-1s", "1..2s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
