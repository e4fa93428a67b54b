//! Lists of sandboxes, page by page.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::response::Response;
use serde::Deserialize;

use super::control::{OfTenant, described};
use super::registry::{Sandbox, Texts};
use crate::failure::Failure;
use crate::running::blocking;
use crate::server::App;

/// The most sandboxes of a page.
const LONGEST_PAGE: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Asked {
    metadata: String,
    state: String,
    order: Order,
    started_after: Option<String>,
    template: Option<String>,
    next_token: Option<u64>,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    /// The youngest first.
    #[default]
    Desc,
}

/// A page of the sandboxes of the tenant.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(asked) = asked?;
    if asked.started_after.is_some() {
        let reason = "startedAfter: sandboxes are not found by their time";
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    let wanted = pairs(&asked.metadata);
    let mut found = app.e2b.all();
    found.retain(|sandbox| sandbox.tenant.name == tenant.name && asked.is_for(sandbox, &wanted));
    found.sort_by_key(|sandbox| sandbox.number);
    if asked.order == Order::Desc {
        found.sort_by_key(|sandbox| Reverse(sandbox.number));
    }
    let page = asked.limit.unwrap_or(LONGEST_PAGE).clamp(1, LONGEST_PAGE);
    let has_more = found.len() > page;
    found.truncate(page);
    let last = found.last().filter(|_| has_more).map(|last| last.number);
    let budget = tenant.budget.clone();
    let answer = blocking(move || {
        let described: Vec<_> = found.iter().map(|sandbox| described(sandbox)).collect();
        budget.answer(&described)
    });
    let mut response = answer.await?;
    if let Some(last) = last {
        let headers = response.headers_mut();
        headers.insert("x-next-token", HeaderValue::from(last));
    }
    Ok(response)
}

impl Asked {
    fn is_for(&self, sandbox: &Sandbox, metadata: &Texts) -> bool {
        let comes = self.next_token.is_none_or(|last| match self.order {
            Order::Asc => sandbox.number > last,
            Order::Desc => sandbox.number < last,
        });
        comes
            && (self.state.is_empty()
                || self
                    .state
                    .split(',')
                    .any(|state| state == sandbox.state_name()))
            && self
                .template
                .as_ref()
                .is_none_or(|template| *template == sandbox.template)
            && metadata
                .iter()
                .all(|(name, text)| sandbox.metadata.get(name) == Some(text))
    }
}

/// Metadata as clients write it: a query in a query, whose names and texts are encoded once more.
fn pairs(query: &str) -> Texts {
    let decoded = |text: &str| {
        let mut parts = form_urlencoded::parse(text.as_bytes());
        parts
            .next()
            .map_or_else(String::new, |(text, _)| text.into_owned())
    };
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .map(|(name, text)| (decoded(&name), decoded(&text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_encoded_twice() {
        let read = pairs("a%2520b=c%2526%253Dd&e=");
        let texts = [("a b", "c&=d"), ("e", "")].map(|(name, text)| (name.into(), text.into()));
        assert_eq!(read, Texts::from(texts));
    }
}
