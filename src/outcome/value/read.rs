//! Deserializes values from JSON in one pass. An object's `type` is its first member, so that no member
//! has to be buffered until the type is known.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::Value;
use super::types::Kind;

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        let expected = &"a signed 64-bit integer";
        let value = i64::try_from(value);
        value
            .map(Value::Int)
            .map_err(|_| E::invalid_value(Unexpected::Other("a larger integer"), expected))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Str(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        match members.next_key::<FirstKey>()? {
            Some(FirstKey) => members.next_value::<Kind>()?.read(Rest(members)),
            None => Err(A::Error::missing_field("type")),
        }
    }
}

/// The key `type`.
struct FirstKey;

impl<'de> Deserialize<'de> for FirstKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl Visitor<'_> for Word {
            type Value = FirstKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`type` as the first member of a value")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<FirstKey, E> {
                match word {
                    "type" => Ok(FirstKey),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_identifier(Word)
    }
}

/// The members after `type`.
pub(super) struct Rest<A>(A);

impl<'de, A: MapAccess<'de>> Rest<A> {
    pub(super) fn read<T: Deserialize<'de>>(self) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(self))
    }
}

/// Reads the remaining members and rejects a second `type`, which the deserializer of those members would
/// ignore as unknown.
impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        key: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(LaterKey(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, value: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

/// A key other than `type`.
struct LaterKey<K>(K);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for LaterKey<K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for LaterKey<K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<K::Value, E> {
        match key {
            "type" => Err(E::duplicate_field("type")),
            key => self.0.deserialize(StrDeserializer::new(key)),
        }
    }
}

/// A `float` that is not a JSON number.
#[derive(serde::Deserialize)]
pub(super) struct SpecialFloat {
    text: SpecialText,
}

#[derive(serde::Deserialize)]
enum SpecialText {
    #[serde(rename = "nan")]
    Nan,
    #[serde(rename = "inf")]
    Infinite,
    #[serde(rename = "-inf")]
    NegativeInfinite,
}

impl From<SpecialFloat> for Value {
    fn from(float: SpecialFloat) -> Self {
        Self::Float(match float.text {
            SpecialText::Nan => f64::NAN,
            SpecialText::Infinite => f64::INFINITY,
            SpecialText::NegativeInfinite => f64::NEG_INFINITY,
        })
    }
}
