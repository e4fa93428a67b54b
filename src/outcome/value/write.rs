//! Serializes values as JSON.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Value;

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Float(value) if value.is_finite() => serializer.serialize_f64(*value),
            Self::Float(value) => special(*value, serializer),
            Self::Str(value) => serializer.serialize_str(value),
            Self::List(items) => items.serialize(serializer),
            Self::Typed(value) => value.serialize(serializer),
        }
    }
}

/// Writes a float that is not a JSON number.
fn special<S: Serializer>(value: f64, serializer: S) -> Result<S::Ok, S::Error> {
    let text = match value {
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "nan",
    };
    let mut object = serializer.serialize_struct("Float", 2)?;
    object.serialize_field("type", "float")?;
    object.serialize_field("text", text)?;
    object.end()
}
