//! Displays values as Python's `repr()` prints them, shortened.

use std::fmt::{self, Write};

use super::{Dict, PackedFormat, Record, TableColumn, TableIndex, TypedValue, Value};

/// The approximate maximum length of the output, characters.
const MAX_CHARACTERS: usize = 2000;
/// The maximum number of elements of one container.
const MAX_ITEMS: usize = 50;
/// The maximum nesting depth of containers.
const MAX_LEVELS: usize = 8;
/// The maximum number of characters of one string.
const MAX_OF_TEXT: usize = 500;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer {
            out: f,
            left: MAX_CHARACTERS,
        };
        printer.value(self, 0)
    }
}

struct Printer<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    /// The number of characters left before containers print no more elements.
    left: usize,
}

impl Write for Printer<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.left = self.left.saturating_sub(text.len());
        self.out.write_str(text)
    }
}

impl Printer<'_, '_> {
    fn value(&mut self, value: &Value, level: usize) -> fmt::Result {
        match value {
            Value::None => self.write_str("None"),
            Value::Bool(true) => self.write_str("True"),
            Value::Bool(false) => self.write_str("False"),
            Value::Int(value) => write!(self, "{value}"),
            Value::Float(value) => self.float(*value),
            Value::Str(text) => self.text(text),
            Value::List(items) => self.items(["[", "]"], items, level),
            Value::Typed(typed) => self.typed(typed, level),
        }
    }

    fn typed(&mut self, value: &TypedValue, level: usize) -> fmt::Result {
        match value {
            TypedValue::Int(value) => self.plain(&value.to_string()),
            TypedValue::Text(_) => self.write_str("<str>"),
            TypedValue::Bytes(_) => self.write_str("<bytes>"),
            TypedValue::Bytearray(_) => self.write_str("<bytearray>"),
            TypedValue::Json(_) => self.write_str("<large value>"),
            TypedValue::Packed(packed) => match packed.format {
                PackedFormat::Int => self.write_str("<list of int>"),
                PackedFormat::Float => self.write_str("<list of float>"),
            },
            TypedValue::Tuple(held) => match held.items.len() {
                1 => self.items(["(", ",)"], &held.items, level),
                _ => self.items(["(", ")"], &held.items, level),
            },
            TypedValue::Set(held) if held.items.is_empty() => self.write_str("set()"),
            TypedValue::Set(held) => self.items(["{", "}"], &held.items, level),
            TypedValue::Frozenset(held) => match held.items.len() {
                0 => self.write_str("frozenset()"),
                _ => self.items(["frozenset({", "})"], &held.items, level),
            },
            TypedValue::Dict(dict) => self.dict(dict, level),
            TypedValue::Complex(complex) => {
                self.write_str("complex")?;
                self.parts([&complex.real, &complex.imag], level)
            }
            TypedValue::Decimal(held) => self.constructor("Decimal", &held.text),
            TypedValue::Fraction(held) => self.constructor("Fraction", &held.text),
            TypedValue::Date(held) => self.constructor("date", &held.text),
            TypedValue::Time(held) => self.constructor("time", &held.text),
            TypedValue::Datetime(held) => self.constructor("datetime", &held.text),
            TypedValue::Path(path) => {
                self.write_str("PurePosixPath")?;
                self.parts([&path.text], level)
            }
            TypedValue::Uuid(held) => self.constructor("UUID", &held.hex),
            TypedValue::Timedelta(span) => write!(
                self,
                "timedelta(days={}, seconds={}, microseconds={})",
                span.days, span.seconds, span.microseconds
            ),
            TypedValue::Timezone(zone) => write!(self, "timezone(seconds={})", zone.seconds),
            TypedValue::Dataclass(record) | TypedValue::Namedtuple(record) => {
                self.record(record, level)
            }
            TypedValue::Enum(member) => self.plain(&member.name),
            TypedValue::Range(range) => {
                self.write_str("range")?;
                self.parts([&range.start, &range.stop, &range.step], level)
            }
            TypedValue::Ndarray(array) => {
                write!(self, "<ndarray {} ", array.dtype)?;
                self.elements(["[", "]"], array.shape.iter(), level, |printer, length| {
                    write!(printer, "{length}")
                })?;
                self.write_str(">")
            }
            TypedValue::Numpy(scalar) => {
                write!(self, "numpy.{}", scalar.dtype)?;
                self.parts([&scalar.value], level)
            }
            TypedValue::Dataframe(frame) => {
                write!(self, "<DataFrame of {} columns", frame.data.len())?;
                self.rows(&frame.index)
            }
            TypedValue::Series(series) => {
                self.write_str("<Series ")?;
                self.value(&series.name, level + 1)?;
                self.rows(&series.index)
            }
            TypedValue::Image(image) => write!(self, "<image {}x{}>", image.size.0, image.size.1),
            TypedValue::Opaque(opaque) => self.plain(&opaque.repr),
        }
    }

    fn dict(&mut self, dict: &Dict, level: usize) -> fmt::Result {
        let pairs = dict.items.iter();
        self.elements(["{", "}"], pairs, level, |printer, (key, value)| {
            printer.value(key, level + 1)?;
            printer.write_str(": ")?;
            printer.value(value, level + 1)
        })
    }

    fn record(&mut self, record: &Record, level: usize) -> fmt::Result {
        self.plain(&record.name)?;
        let fields = record.fields.iter();
        self.elements(["(", ")"], fields, level, |printer, (name, value)| {
            printer.plain(name)?;
            printer.write_str("=")?;
            printer.value(value, level + 1)
        })
    }

    /// Writes the arguments of a constructor.
    fn parts<const N: usize>(&mut self, parts: [&Value; N], level: usize) -> fmt::Result {
        self.elements(["(", ")"], parts.into_iter(), level, |printer, part| {
            printer.value(part, level + 1)
        })
    }

    /// Writes `, 12 rows>`, if the header shows the number of rows.
    fn rows(&mut self, index: &TableIndex) -> fmt::Result {
        let rows = match index {
            TableIndex::RangeIndex(range) => range.count(),
            TableIndex::Index(index) => index.data.first().and_then(TableColumn::count),
        };
        match rows {
            Some(rows) => write!(self, ", {rows} rows>"),
            None => self.write_str(">"),
        }
    }

    fn items(&mut self, around: [&str; 2], items: &[Value], level: usize) -> fmt::Result {
        self.elements(around, items.iter(), level, |printer, item| {
            printer.value(item, level + 1)
        })
    }

    /// Writes the first elements of a container.
    fn elements<T>(
        &mut self,
        [open, close]: [&str; 2],
        items: impl ExactSizeIterator<Item = T>,
        level: usize,
        mut write: impl FnMut(&mut Self, T) -> fmt::Result,
    ) -> fmt::Result {
        self.write_str(open)?;
        let last = if level < MAX_LEVELS { MAX_ITEMS } else { 0 };
        for (number, item) in items.enumerate() {
            if number > 0 {
                self.write_str(", ")?;
            }
            if number >= last || self.left == 0 {
                self.write_str("...")?;
                break;
            }
            write(self, item)?;
        }
        self.write_str(close)
    }

    fn constructor(&mut self, name: &str, text: &str) -> fmt::Result {
        write!(self, "{name}(")?;
        self.text(text)?;
        self.write_str(")")
    }

    /// Writes a string literal as Python does.
    fn text(&mut self, text: &str) -> fmt::Result {
        let quote = if text.contains('\'') && !text.contains('"') {
            '"'
        } else {
            '\''
        };
        self.write_char(quote)?;
        for (number, character) in text.chars().enumerate() {
            if number == MAX_OF_TEXT {
                self.write_str("...")?;
                break;
            }
            match character {
                '\\' => self.write_str("\\\\")?,
                character if character == quote => write!(self, "\\{character}")?,
                '\'' | '"' => self.write_char(character)?,
                '\n' => self.write_str("\\n")?,
                '\r' => self.write_str("\\r")?,
                '\t' => self.write_str("\\t")?,
                character => self.character(character)?,
            }
        }
        self.write_char(quote)
    }

    /// Writes a sender's text without quotes, and escapes characters that would affect a terminal.
    fn plain(&mut self, text: &str) -> fmt::Result {
        for (number, character) in text.chars().enumerate() {
            if number == MAX_OF_TEXT {
                return self.write_str("...");
            }
            match character {
                '\'' | '"' | '\\' | '\n' => self.write_char(character)?,
                character => self.character(character)?,
            }
        }
        Ok(())
    }

    /// Writes a character, escaped if it is not printable.
    fn character(&mut self, character: char) -> fmt::Result {
        let code = u32::from(character);
        if character.escape_debug().len() == 1 {
            return self.write_char(character);
        }
        match code {
            0..=0xff => write!(self, "\\x{code:02x}"),
            0x100..=0xffff => write!(self, "\\u{code:04x}"),
            _ => write!(self, "\\U{code:08x}"),
        }
    }

    fn float(&mut self, value: f64) -> fmt::Result {
        if value.is_nan() {
            return self.write_str("nan");
        }
        if value.is_infinite() {
            return self.write_str(if value > 0.0 { "inf" } else { "-inf" });
        }
        let size = value.abs();
        if size == 0.0 || (1e-4..1e16).contains(&size) {
            return write!(self, "{value:?}");
        }
        // Python prints a sign and at least two digits after the `e`.
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, power)) => {
                let (sign, power) = match power.strip_prefix('-') {
                    Some(power) => ('-', power),
                    None => ('+', power),
                };
                write!(self, "{digits}e{sign}{power:0>2}")
            }
            None => self.write_str(&text),
        }
    }
}
