//! Numbers as Kubernetes' validators see them: 64-bit integers where they fit, else floats.

use super::Type;
use serde_json::{Number, Value};

/// A JSON number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int(i64),
    Float(f64),
}

impl From<&Number> for Num {
    fn from(number: &Number) -> Self {
        match number.as_i64() {
            Some(int) => Num::Int(int),
            None => Num::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }
}

impl Num {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Num::Int(int) => int as f64,
            Num::Float(float) => float,
        }
    }

    /// Whether it is a whole number in the range where floats are exact.
    pub(crate) fn is_whole(self) -> bool {
        const LARGEST: f64 = 9_007_199_254_740_991.0;
        match self {
            Num::Int(_) => true,
            Num::Float(f) => f.abs() <= LARGEST && f.fract() == 0.0,
        }
    }

    /// Whether it is in the range of a type and format.
    pub(crate) fn fits(self, ty: Option<Type>, format: Option<&str>) -> bool {
        match (ty, format) {
            (Some(Type::Integer), Some("int32")) => self.whole_within(i32::MIN as f64, i32::MAX as f64),
            (Some(Type::Integer), _) => self.whole_within(i64::MIN as f64, i64::MAX as f64),
            (Some(Type::Number), Some("float")) => self.as_f64().abs() <= f64::from(f32::MAX),
            _ => true,
        }
    }

    fn whole_within(self, low: f64, high: f64) -> bool {
        match self {
            Num::Int(int) => (low..=high).contains(&(int as f64)),
            // 2^63 itself is out of range, and is what i64::MAX rounds to.
            Num::Float(f) => f.fract() == 0.0 && f >= low && f <= high && f < 9_223_372_036_854_775_808.0,
        }
    }
}

/// A float as Go prints it: `1`, `1.5`, `1e+21`.
pub(crate) fn go_float(f: f64) -> String {
    let exponent = if f == 0.0 { 0 } else { f.abs().log10().floor() as i32 };
    if f.is_finite() && !(-4..21).contains(&exponent) {
        let text = format!("{f:e}");
        if let Some((mantissa, exponent)) = text.split_once('e') {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            return format!("{mantissa}e{sign}{digits:0>2}");
        }
    }
    format!("{f}")
}

/// A value as Go would print it in an error: whole floats lose their fraction.
pub(crate) fn shown(value: &Value) -> Value {
    match value {
        Value::Number(number) if !number.is_i64() && !number.is_u64() => match number.as_f64() {
            Some(f) if f.fract() == 0.0 && f.abs() < 1e15 => Value::from(f as i64),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(shown).collect(),
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), shown(v))).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_print_as_in_go() {
        for (f, text) in
            [(1.0, "1"), (1.5, "1.5"), (0.0001, "0.0001"), (0.00001, "1e-05"), (1e21, "1e+21"), (0.0, "0")]
        {
            assert_eq!(go_float(f), text);
        }
    }

    #[test]
    fn ranges() {
        let int32 = Some("int32");
        assert!(Num::Int(2_147_483_647).fits(Some(Type::Integer), int32));
        assert!(!Num::Int(2_147_483_648).fits(Some(Type::Integer), int32));
        assert!(Num::Float(2_147_483_647.0).fits(Some(Type::Integer), int32));
        assert!(!Num::Float(1.5).fits(Some(Type::Integer), None));
        assert!(!Num::Float(1e19).fits(Some(Type::Integer), None));
        assert!(!Num::Float(1e39).fits(Some(Type::Number), Some("float")));
        assert!(Num::Float(1e39).fits(Some(Type::Number), Some("double")));
        assert_eq!(shown(&json!({"a": [1.0, 2.5]})), json!({"a": [1, 2.5]}));
    }
}
