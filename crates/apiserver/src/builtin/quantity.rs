//! Quantities (`500m`, `1Gi`): checked and brought into the one form in which Kubernetes stores them.

/// What Kubernetes says of a text that is no quantity.
pub(crate) const PROBLEM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Decimal suffixes from small to large, with their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// Binary suffixes with their powers of 1024.
const BINARY: [(&str, u32); 6] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];

/// How the number was written, which is also how it is written back.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Decimal,
    Exponent,
    Binary,
}

/// The canonical form: no fraction, and the largest suffix that loses nothing. `None`: not a quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (negative, digits, fraction, suffix) = split(text)?;
    let (style, power) = scale(suffix)?;
    let mut mantissa: i128 = format!("{digits}{fraction}").parse().ok()?;
    let mut exponent = -i32::try_from(fraction.len()).ok()?;
    if style == Style::Binary {
        return binary(mantissa, exponent, power, negative);
    }
    exponent += power;
    // Nothing smaller than a billionth is kept; the rest is rounded away from zero.
    while exponent < -9 {
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        exponent += 1;
    }
    Some(sign(negative, mantissa, &decimal(mantissa, exponent, style)))
}

fn sign(negative: bool, mantissa: i128, rest: &str) -> String {
    if negative && mantissa != 0 { format!("-{rest}") } else { rest.to_string() }
}

/// Sign, digits, digits after the point, suffix.
fn split(text: &str) -> Option<(bool, &str, &str, &str)> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (digits, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (digits.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    Some((negative, digits, fraction, suffix))
}

fn scale(suffix: &str) -> Option<(Style, i32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Style::Decimal, *power));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((Style::Binary, i32::try_from(*power).ok()?));
    }
    let power = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    (-18..=18).contains(&power).then_some((Style::Exponent, power))
}

/// The number with the largest power of a thousand that leaves no fraction.
fn decimal(mut mantissa: i128, mut exponent: i32, style: Style) -> String {
    if mantissa == 0 {
        return "0".into();
    }
    while mantissa % 10 == 0 && exponent < 18 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent.rem_euclid(3) != 0 {
        mantissa *= 10;
        exponent -= 1;
    }
    match style {
        Style::Exponent if exponent != 0 => format!("{mantissa}e{exponent}"),
        _ => {
            let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent).map_or("", |(name, _)| name);
            format!("{mantissa}{suffix}")
        }
    }
}

/// Binary numbers with a fraction (`1.5Gi`) step down to a suffix without one, and below one to decimal form.
fn binary(mantissa: i128, exponent: i32, power: i32, negative: bool) -> Option<String> {
    let bytes = mantissa.checked_mul(1024_i128.checked_pow(u32::try_from(power).ok()?)?)?;
    let tens = 10_i128.checked_pow(u32::try_from(-exponent).ok()?)?;
    if bytes % tens != 0 {
        // Not a whole number of bytes: Kubernetes falls back to decimal thousandths.
        let thousandths = bytes.checked_mul(1000)?;
        let rounded = thousandths / tens + i128::from(thousandths % tens != 0);
        return Some(sign(negative, rounded, &decimal(rounded, -3, Style::Decimal)));
    }
    let mut whole = bytes / tens;
    let mut step = 0;
    while whole != 0 && whole % 1024 == 0 && step < BINARY.len() {
        whole /= 1024;
        step += 1;
    }
    let suffix = if step == 0 { "" } else { BINARY[step - 1].0 };
    Some(sign(negative, whole, &format!("{whole}{suffix}")))
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn written_as_the_real_server_stores_them() {
        for (written, stored) in [
            ("1.5", "1500m"),
            ("1024Ki", "1Mi"),
            ("0.1", "100m"),
            ("1e3", "1e3"),
            ("1000m", "1"),
            ("1500Mi", "1500Mi"),
            ("1.5Gi", "1536Mi"),
            ("1000", "1k"),
            ("0", "0"),
            ("-1", "-1"),
            ("100k", "100k"),
            ("10000k", "10M"),
            ("0.5Mi", "512Ki"),
            (".5", "500m"),
            ("1Gi", "1Gi"),
            ("12e6", "12e6"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(stored), "{written}");
        }
    }

    #[test]
    fn refuses_other_texts() {
        for text in ["", "zz", "1.2.3", "1x", "--1", "1 Gi", "Gi", "1gi"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
