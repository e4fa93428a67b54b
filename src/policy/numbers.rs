//! Plain numbers of a policy file, with errors that explain what to write.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A count of things: pids, descriptors, inodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Count(pub(super) u32);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number without quotes, such as 64")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
                u32::try_from(number).map(Count).map_err(|_| {
                    E::custom(format_args!(
                        "{number} is not a count: write a whole number above 0, such as 64"
                    ))
                })
            }
        }

        deserializer.deserialize_i64(Number)
    }
}

impl JsonSchema for Count {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX })
    }
}

/// A share of the processors, kept in thousandths of one. A float has no exact equality, and the
/// kernel's quota is not finer (Documentation/scheduler/sched-bwc.rst).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Cores(u32);

impl Cores {
    /// From thousandths of a processor.
    pub fn from_millicores(millicores: u32) -> Self {
        Self(millicores)
    }

    /// In thousandths of a processor.
    pub fn millicores(self) -> u32 {
        self.0
    }

    fn from_cores<E: Error>(cores: f64) -> Result<Self, E> {
        let millicores = (cores * 1000.0).round();
        if (0.0..=f64::from(u32::MAX)).contains(&millicores) {
            // The value is in range and whole: the check above also refuses NaN.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            return Ok(Self(millicores as u32));
        }
        Err(E::custom(format_args!(
            "{cores} is not a number of processors: write a number above 0, such as 0.5 or 2"
        )))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

impl Serialize for Cores {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1000.0)
    }
}

impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Cores;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of processors without quotes, such as 0.5 or 2")
            }

            fn visit_f64<E: Error>(self, cores: f64) -> Result<Cores, E> {
                Cores::from_cores(cores)
            }

            fn visit_i64<E: Error>(self, cores: i64) -> Result<Cores, E> {
                // Rounding starts at 2^53, far above the range of `from_cores`.
                #[allow(clippy::cast_precision_loss)]
                Cores::from_cores(cores as f64)
            }
        }

        deserializer.deserialize_any(Number)
    }
}

impl JsonSchema for Cores {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cores".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "number", "exclusiveMinimum": 0 })
    }
}
