//! Values that a policy file writes as a string with its own grammar.

/// Implements reading and JSON Schema for a type that has `FromStr`. The error of a
/// wrong TOML type explains what to write. The error of a wrong text comes from the parser. The
/// last argument is the JSON Schema keyword that constrains the text.
macro_rules! read_text {
    ($type:ty, $expecting:expr, $keyword:literal: $constraint:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", $keyword: $constraint })
            }
        }
    };
}

/// Implements writing for a type that has `Display`.
macro_rules! serialize_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

/// Implements both.
macro_rules! text_value {
    ($type:ty, $expecting:expr, $keyword:literal: $constraint:expr) => {
        $crate::policy::text_value::read_text!($type, $expecting, $keyword: $constraint);
        $crate::policy::text_value::serialize_text!($type);
    };
}

pub(super) use {read_text, serialize_text, text_value};
