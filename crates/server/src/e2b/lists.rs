//! Paginated lists of sandboxes.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::response::Response;
use serde::Deserialize;

use super::control::{OfTenant, described};
use super::registry::{Sandbox, StringMap};
use crate::failure::Failure;
use crate::running::blocking;
use crate::server::App;

/// The maximum number of sandboxes of a page.
const MAX_PAGE: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListQuery {
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
    /// Newest first.
    #[default]
    Desc,
}

/// Lists the tenant's sandboxes, one page at a time.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    params: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(params) = params?;
    if params.started_after.is_some() {
        let reason = "startedAfter: filtering by start time is not supported";
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    let wanted = pairs(&params.metadata);
    let mut found = app.e2b.all();
    found.retain(|sandbox| sandbox.tenant.name == tenant.name && params.selects(sandbox, &wanted));
    found.sort_by_key(|sandbox| sandbox.number);
    if params.order == Order::Desc {
        found.sort_by_key(|sandbox| Reverse(sandbox.number));
    }
    let page = params.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
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

impl ListQuery {
    fn selects(&self, sandbox: &Sandbox, metadata: &StringMap) -> bool {
        let is_after_last_page = self.next_token.is_none_or(|last| match self.order {
            Order::Asc => sandbox.number > last,
            Order::Desc => sandbox.number < last,
        });
        is_after_last_page
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

/// Parses metadata as clients encode it: a query string within a query string, with its names and values encoded twice.
fn pairs(query: &str) -> StringMap {
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
    fn metadata_is_decoded_twice() {
        let read = pairs("a%2520b=c%2526%253Dd&e=");
        let texts = [("a b", "c&=d"), ("e", "")].map(|(name, text)| (name.into(), text.into()));
        assert_eq!(read, StringMap::from(texts));
    }
}
