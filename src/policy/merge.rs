//! Combines the layers of a policy: the last layer that has a scalar wins, lists append.

use std::collections::BTreeMap;

use super::error::{PolicyError, PolicyProblem};
use super::field::{Field, List};
use super::file::PolicyFile;
use super::layer::Layer;
use super::origin::{Located, Origin};

/// The layers of a policy, starting with the base of all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge<'a>(pub(super) &'a [Layer]);

impl<'a> Merge<'a> {
    /// The value of the last layer that has one, with that layer.
    pub(super) fn placed_scalar<T: Clone>(
        self,
        key: &'static str,
        get: impl Fn(&PolicyFile) -> Option<&Field<T>>,
    ) -> Result<(&'a Layer, Located<T>), PolicyError> {
        let said = self.0.iter().rev().find_map(|layer| {
            let field = get(&layer.contents)?;
            let origin = layer.origin(&field.span());
            Some((layer, Located::new(field.value().clone(), origin)))
        });
        said.ok_or_else(|| {
            // The topmost layer is the user's own.
            let file = self.0.last().map(Layer::whole);
            let origin = file.unwrap_or_else(|| Origin::of_file("policy"));
            PolicyError::new(origin, key, PolicyProblem::Missing)
        })
    }

    /// The value of the last layer that has one.
    pub(super) fn scalar<T: Clone>(
        self,
        key: &'static str,
        get: impl Fn(&PolicyFile) -> Option<&Field<T>>,
    ) -> Result<Located<T>, PolicyError> {
        self.placed_scalar(key, get).map(|(_, value)| value)
    }

    /// The items of all layers in order, each with its layer, or `None` if no layer has the list.
    /// That differs from an empty list.
    pub(super) fn items<T: Clone + 'a>(
        self,
        get: impl Fn(&PolicyFile) -> Option<&List<T>>,
    ) -> Option<Vec<(&'a Layer, Located<T>)>> {
        let mut lists = self
            .0
            .iter()
            .filter_map(|layer| Some((layer, get(&layer.contents)?)))
            .peekable();
        lists.peek()?;
        let placed = lists.flat_map(|(layer, list)| {
            list.items().iter().map(move |item| {
                let origin = layer.origin(&item.span());
                (layer, Located::new(item.value().clone(), origin))
            })
        });
        Some(placed.collect())
    }

    /// The items of all layers in order, without duplicates.
    pub(super) fn list<T: Clone + ToString + 'a>(
        self,
        key: &'static str,
        get: impl Fn(&PolicyFile) -> Option<&List<T>>,
    ) -> Result<Vec<Located<T>>, PolicyError> {
        let items = self.items(get).unwrap_or_default();
        let items: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
        refuse_duplicates(key, &items, ToString::to_string)?;
        Ok(items)
    }
}

/// Refuses the first item that means the same as an earlier one.
pub(super) fn refuse_duplicates<T>(
    key: &'static str,
    items: &[Located<T>],
    meaning: impl Fn(&T) -> String,
) -> Result<(), PolicyError> {
    let mut seen: BTreeMap<String, &Origin> = BTreeMap::new();
    for item in items {
        let item_meaning = meaning(&item.value);
        if let Some(first) = seen.get(&item_meaning) {
            let problem = PolicyProblem::Duplicate {
                item: item_meaning,
                first: (*first).clone(),
            };
            return Err(PolicyError::new(item.origin.clone(), key, problem));
        }
        seen.insert(item_meaning, &item.origin);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::layer::Source;

    fn layers(texts: &[&str]) -> Vec<Layer> {
        let parse = |text: &&str| Layer::parse(Source::file("x.toml", text), text, None);
        let parsed: Result<Vec<_>, _> = texts.iter().map(parse).collect();
        parsed.expect("valid policies")
    }

    #[test]
    fn a_scalar_that_nobody_gives_is_an_error() {
        let layers = layers(&["", "limits.cpu = '1s'"]);
        let wall = Merge(&layers).scalar("limits.wall", |file| file.limits.wall.as_ref());
        assert_eq!(
            wall.expect_err("no layer has it").to_string(),
            "x.toml: limits.wall: no policy gives this key a value: write it here"
        );
    }

    #[test]
    fn an_empty_list_is_not_an_absent_one() {
        let absent = layers(&["", ""]);
        let empty = layers(&["", "imports.allow = []"]);
        let items = |layers: &[Layer]| {
            let items = Merge(layers).items(|file| file.imports.allow.as_ref());
            items.map(|items| items.len())
        };
        assert_eq!(items(&absent), None);
        assert_eq!(items(&empty), Some(0));
    }
}
