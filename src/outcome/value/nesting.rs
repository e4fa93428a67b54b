//! How deep values are inside each other. Nothing here recurses: a caller can make a value of any depth, and one call for
//! each level would exhaust the stack.

use super::{TypedValue, Value};

/// The most values that are inside each other. A guest refuses a value with more.
pub(crate) const MOST_LEVELS: usize = 96;

impl Value {
    /// Returns the value if it has at most [`MOST_LEVELS`].
    ///
    /// # Errors
    /// With a deeper one, which is no longer there: to drop it would recurse.
    pub(crate) fn of_few_levels(self) -> Result<Self, TooDeep> {
        if self.is_deep() {
            take_apart(self);
            return Err(TooDeep);
        }
        Ok(self)
    }

    fn is_deep(&self) -> bool {
        let mut level = vec![self];
        for _ in 0..MOST_LEVELS {
            let inner = level.into_iter().flat_map(parts);
            level = inner
                .filter(|part| matches!(part, Self::List(_) | Self::Typed(_)))
                .collect();
            if level.is_empty() {
                return false;
            }
        }
        true
    }
}

/// A value has more than [`MOST_LEVELS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TooDeep;

/// The values of a container. Other types are read from messages, whose depth is bounded.
fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let pairs = value.as_dict().into_iter().flatten();
    let items = value.as_list().into_iter().flatten();
    items.chain(pairs.flat_map(|(key, value)| [key, value]))
}

fn take_apart(value: Value) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::List(items) => rest.extend(items),
            Value::Typed(typed) => match *typed {
                TypedValue::Tuple(held) | TypedValue::Set(held) | TypedValue::Frozenset(held) => {
                    rest.extend(held.items);
                }
                TypedValue::Dict(dict) => {
                    rest.extend(dict.items.into_iter().flat_map(|(key, value)| [key, value]));
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many containers inside each other.
    fn nested(levels: usize, around: impl Fn(Value) -> Value) -> Value {
        (0..levels).fold(Value::Int(1), |inner, _| around(inner))
    }

    #[test]
    fn containers_have_levels() {
        let containers: [fn(Value) -> Value; 3] = [
            |inner| Value::List(vec![1.into(), inner]),
            |inner| Value::tuple([inner]),
            |inner| Value::dict([("key", inner)]),
        ];
        for around in containers {
            let most = nested(MOST_LEVELS, around);
            assert_eq!(most.clone().of_few_levels(), Ok(most.clone()));
            assert_eq!(around(most).of_few_levels(), Err(TooDeep));
            // On a stack of 2 MiB.
            assert_eq!(nested(200_000, around).of_few_levels(), Err(TooDeep));
        }
    }
}
