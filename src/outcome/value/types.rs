//! The types of values for which JSON has no notation, written as objects with a `type`.

use serde::de::MapAccess;
use serde::{Deserialize, Serialize};

use super::read::{Rest, SpecialFloat};
use super::typed::{
    Complex, DataFrame, Datetime, Dict, EnumMember, Held, Image, Items, Ndarray, NumpyScalar,
    Opaque, Packed, Path, Range, Record, Series, Text, Time, Timedelta, Timezone, Uuid,
};
use super::{BigInt, Value};

/// Declares the types of values, and reads the members of each once its `type` is known.
macro_rules! typed_values {
    ($($(#[$meta:meta])+ $Name:ident($Members:ty),)+) => {
        /// A value with a `type`, which is the variant's name in kebab-case.
        ///
        /// Text that represents a value (`decimal`, `datetime`) is unchanged from the sender, and its users
        /// must parse it.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "type", rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum TypedValue {
            $($(#[$meta])+ $Name($Members),)+
        }

        /// The `type` of a value. `Float` has no variant of [`TypedValue`]: it is only a notation for [`Value::Float`].
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(super) enum Kind {
            Float,
            $($Name,)+
        }

        impl Kind {
            pub(super) fn read<'de, A: MapAccess<'de>>(self, rest: Rest<A>) -> Result<Value, A::Error> {
                match self {
                    Self::Float => rest.read::<SpecialFloat>().map(Value::from),
                    $(Self::$Name => Ok(TypedValue::$Name(rest.read()?).into()),)+
                }
            }
        }
    };
}

typed_values! {
    /// `int` outside the 64 bits of [`Value::Int`].
    Int(BigInt),
    /// `str` that is long or has a lone surrogate: UTF-8 in a buffer, with surrogates as three bytes each.
    Text(Held),
    /// `bytes`, in a buffer.
    Bytes(Held),
    /// `bytearray`, in a buffer.
    Bytearray(Held),
    /// A part of the tree that exceeds the limits of a header: JSON text of the same notation in a buffer.
    Json(Held),
    /// `tuple`.
    Tuple(Items),
    /// `set`.
    Set(Items),
    /// `frozenset`.
    Frozenset(Items),
    /// `dict`, in the order in which its keys were inserted.
    Dict(Dict),
    /// A long `list` of numbers of one type, in a buffer.
    Packed(Packed),
    /// `complex`.
    Complex(Complex),
    /// `decimal.Decimal`.
    Decimal(Text),
    /// `fractions.Fraction`, as `1/3`.
    Fraction(Text),
    /// `datetime.date`, as ISO 8601 writes it.
    Date(Text),
    /// `datetime.time`.
    Time(Time),
    /// `datetime.datetime`.
    Datetime(Datetime),
    /// `datetime.timedelta`.
    Timedelta(Timedelta),
    /// `datetime.timezone`.
    Timezone(Timezone),
    /// A path of `pathlib`.
    Path(Path),
    /// `uuid.UUID`.
    Uuid(Uuid),
    /// An instance of a dataclass.
    Dataclass(Record),
    /// A named tuple.
    Namedtuple(Record),
    /// A member of an enumeration.
    Enum(EnumMember),
    /// `range`.
    Range(Range),
    /// `numpy.ndarray`.
    Ndarray(Ndarray),
    /// A scalar of numpy.
    Numpy(NumpyScalar),
    /// `pandas.DataFrame`.
    Dataframe(DataFrame),
    /// `pandas.Series`.
    Series(Series),
    /// A Pillow image.
    Image(Image),
    /// A value that cannot be transferred.
    Opaque(Opaque),
}
