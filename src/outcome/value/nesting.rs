//! Limits the nesting depth of values. Nothing here recurses, because a caller can build a value of any depth and one
//! call per level would exhaust the stack.

use super::{TypedValue, Value};

/// The maximum nesting depth of a value. A guest rejects a deeper value.
pub(crate) const MAX_LEVELS: usize = 96;

impl Value {
    /// Returns the value if it has at most [`MAX_LEVELS`].
    ///
    /// # Errors
    /// If the value is deeper. This function has then dropped it, because an ordinary drop would recurse.
    pub(crate) fn of_few_levels(self) -> Result<Self, TooDeep> {
        if self.is_deep() {
            drop_without_recursion(self);
            return Err(TooDeep);
        }
        Ok(self)
    }

    fn is_deep(&self) -> bool {
        let mut level = vec![self];
        for _ in 0..MAX_LEVELS {
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

/// The error for a value with more than [`MAX_LEVELS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TooDeep;

/// Returns the values in a container. Values of other types come from messages, whose depth is bounded.
fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let pairs = value.as_dict().into_iter().flatten();
    let items = value.as_list().into_iter().flatten();
    items.chain(pairs.flat_map(|(key, value)| [key, value]))
}

/// Drops a value level by level.
fn drop_without_recursion(value: Value) {
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

    /// Nests a value in that many containers.
    fn nested(levels: usize, around: impl Fn(Value) -> Value) -> Value {
        (0..levels).fold(Value::Int(1), |inner, _| around(inner))
    }

    #[test]
    fn containers_are_limited_in_depth() {
        let containers: [fn(Value) -> Value; 3] = [
            |inner| Value::List(vec![1.into(), inner]),
            |inner| Value::tuple([inner]),
            |inner| Value::dict([("key", inner)]),
        ];
        for around in containers {
            let most = nested(MAX_LEVELS, around);
            assert_eq!(most.clone().of_few_levels(), Ok(most.clone()));
            assert_eq!(around(most).of_few_levels(), Err(TooDeep));
            // A recursive drop would overflow the 2 MiB stack of a test thread.
            assert_eq!(nested(200_000, around).of_few_levels(), Err(TooDeep));
        }
    }
}
