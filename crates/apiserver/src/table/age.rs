//! Time spans as people read them.

use jiff::Timestamp;
use serde_json::Value;

/// How long ago a time was; `<unknown>` without one, `<invalid>` for a text that is no time.
pub(super) fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str() {
        None => "<unknown>".into(),
        Some(text) => match text.parse::<Timestamp>() {
            Ok(time) => human(now.as_second() - time.as_second()),
            Err(_) => "<invalid>".into(),
        },
    }
}

/// The time between two times, if both are there.
pub(super) fn between(from: &Value, to: Timestamp) -> Option<String> {
    let from = from.as_str()?.parse::<Timestamp>().ok()?;
    Some(human(to.as_second() - from.as_second()))
}

/// One or two units, coarser the longer the span is.
pub(super) fn human(seconds: i64) -> String {
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        // Clocks differ a little; more than that is wrong.
        ..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spans_are_rounded_like_kubectl_shows_them() {
        for (seconds, shown) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400 + 3600, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (8 * 365 * 86400, "8y"),
        ] {
            assert_eq!(human(seconds), shown, "{seconds}");
        }
    }

    #[test]
    fn missing_and_wrong_times() {
        let now = Timestamp::from_second(1_000).unwrap();
        assert_eq!(since(&Value::Null, now), "<unknown>");
        assert_eq!(since(&json!("junk"), now), "<invalid>");
        assert_eq!(since(&json!("1970-01-01T00:16:30Z"), now), "10s");
    }
}
