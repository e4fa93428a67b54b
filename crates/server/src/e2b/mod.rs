//! E2B's protocol: what the packages `e2b` and `e2b-code-interpreter` call.
//!
//! The *control plane* makes and ends sandboxes, for a tenant's token. The *data plane* reaches what runs in one: its
//! code interpreter (port 49999 at E2B) and its daemon `envd` (port 49983). Both are on the server's one port. A request
//! names its sandbox in headers and presents the sandbox's own token, which the control plane has given.

mod access;
mod commands;
mod config;
mod context;
mod control;
mod filesystem;
mod interpreter;
mod lists;
mod pausing;
mod process;
mod registry;
mod rpc;
mod snapshots;
mod transfer;
mod watch;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post, put};
use axum::{Extension, Json, Router};
use sandfork::GuestPath;
use serde_json::{Value, json};

pub use self::pausing::end_over;
pub use self::registry::Registry;
use self::registry::Sandbox;
use crate::failure::{Failure, answer_in};
use crate::server::{App, identify, other_method};

/// The sandbox of a request of the data plane.
type OfSandbox = Extension<Arc<Sandbox>>;
type Answer = Result<Json<Value>, Failure>;

/// The version of `envd` whose protocol this is.
const ENVD_VERSION: &str = "0.5.2";

/// The routes, with what finds the tenant or the sandbox of a request.
pub fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let control = control_routes().method_not_allowed_fallback(other_method);
    let control = answer_in(failed, control).layer(from_fn_with_state(Arc::clone(app), identify));
    let data = data_routes().method_not_allowed_fallback(other_method);
    let data = answer_in(failed, data).layer(from_fn_with_state(Arc::clone(app), access::reach));
    // Those that go no further too.
    answer_in(failed, control.merge(data))
}

/// The routes of the control plane.
fn control_routes() -> Router<Arc<App>> {
    let mut routes = Router::new()
        .route("/snapshots", get(snapshots::list))
        .route("/templates/{id}", delete(snapshots::remove));
    for version in ["", "/v2"] {
        let path = |below: &str| format!("{version}/sandboxes{below}");
        routes = routes
            .route(&path(""), post(control::create).get(lists::list))
            .route(&path("/{id}"), get(control::show).delete(control::remove))
            .route(&path("/{id}/timeout"), post(control::set_timeout))
            .route(&path("/{id}/connect"), post(pausing::connect))
            .route(&path("/{id}/fork"), post(snapshots::fork))
            .route(&path("/{id}/snapshots"), post(snapshots::create))
            .route(&path("/{id}/metrics"), get(control::metrics))
            .route(&path("/{id}/pause"), post(pausing::pause))
            .route(&path("/{id}/network"), put(control::network));
    }
    routes
}

/// The routes of the data plane.
fn data_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/health", get(async || StatusCode::NO_CONTENT))
        .route("/execute", post(interpreter::execute))
        .route(
            "/contexts",
            post(interpreter::create).get(interpreter::list),
        )
        .route("/contexts/{id}", delete(interpreter::remove))
        .route("/contexts/{id}/restart", post(interpreter::restart))
        .route("/files", get(transfer::download).post(transfer::upload))
        .merge(answer_in(rpc::failed, calls()))
        .merge(answer_in(rpc::stream_failed, streams()))
}

/// The remote calls that are answered at once.
fn calls() -> Router<Arc<App>> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", post(filesystem::stat))
        .route("/filesystem.Filesystem/MakeDir", post(filesystem::make_dir))
        .route("/filesystem.Filesystem/Move", post(filesystem::rename))
        .route("/filesystem.Filesystem/ListDir", post(filesystem::list_dir))
        .route("/filesystem.Filesystem/Remove", post(filesystem::remove))
        .route("/filesystem.Filesystem/CreateWatcher", post(watch::create))
        .route(
            "/filesystem.Filesystem/GetWatcherEvents",
            post(watch::events),
        )
        .route("/filesystem.Filesystem/RemoveWatcher", post(watch::remove))
        .route("/filesystem.Filesystem/{call}", any(rpc::unsupported))
        .route("/process.Process/List", post(process::list))
        .route("/process.Process/SendInput", post(process::send_input))
        .route("/process.Process/CloseStdin", post(process::close_stdin))
        .route("/process.Process/SendSignal", post(process::send_signal))
        .route("/process.Process/Update", post(process::update))
        .route("/process.Process/{call}", any(rpc::unsupported))
}

/// The remote calls whose answers are streams.
fn streams() -> Router<Arc<App>> {
    Router::new()
        .route("/filesystem.Filesystem/WatchDir", post(watch::watch_dir))
        .route("/process.Process/Start", post(process::start))
        .route("/process.Process/Connect", post(process::connect))
}

/// A failure as E2B's clients understand it, and its status.
fn described(failure: &Failure) -> (StatusCode, Value) {
    let status = match failure {
        Failure::Request(_) => StatusCode::BAD_REQUEST,
        failure => failure.status(),
    };
    let body = json!({ "code": status.as_u16(), "message": failure.message() });
    (status, body)
}

/// The answer to a request without a result.
fn failed(failure: &Failure) -> Response {
    let (status, body) = described(failure);
    (status, Json(body)).into_response()
}

/// A path with the home that guests have here, in place of the one that they have at E2B.
fn at_home(path: &str) -> String {
    match path.strip_prefix("/home/user") {
        Some(below) if below.is_empty() || below.starts_with('/') => format!("/work{below}"),
        _ => path.to_owned(),
    }
}

/// A place in the work directory of a sandbox.
#[derive(Clone, Debug)]
struct Place {
    /// Relative to the work directory, and empty for that itself.
    below: String,
}

impl Place {
    /// Reads a path as E2B's clients write it: absolute ones begin with `/home/user`, the home of a sandbox there, or with
    /// `/work`, the home that guests have here.
    fn new(path: &str) -> Result<Self, Failure> {
        let path = at_home(path);
        let text = if path.starts_with('/') {
            path
        } else {
            format!("/work/{path}")
        };
        // A name below it, so that the work directory itself is a place too.
        let inside = GuestPath::of_file(&format!("{text}/x"));
        // The error names the path that the client has sent.
        let inside = inside.map_err(|error| GuestPath::of_file(&text).err().unwrap_or(error))?;
        let inside = inside.to_string();
        let below = inside.strip_suffix('x').unwrap_or_default();
        Ok(Self {
            below: below.trim_end_matches('/').to_owned(),
        })
    }

    /// The path as the session takes it.
    fn as_str(&self) -> &str {
        if self.below.is_empty() {
            "."
        } else {
            &self.below
        }
    }

    /// The path as guests have it.
    fn guest(&self) -> String {
        format!("/work/{}", self.below)
            .trim_end_matches('/')
            .to_owned()
    }

    /// An entry of this directory.
    fn entry(&self, name: &str) -> Self {
        Self {
            below: format!("{}/{name}", self.below)
                .trim_start_matches('/')
                .to_owned(),
        }
    }

    /// The last name of it.
    fn name(&self) -> String {
        let path = self.guest();
        path.rsplit('/').next().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_the_work_directory() {
        for (path, below) in [
            ("a/b", "a/b"),
            ("/home/user/a", "a"),
            ("/home/user", ""),
            ("/work/a/", "a"),
            ("", ""),
            (".", ""),
            ("a/../b", "b"),
            ("ax", "ax"),
        ] {
            assert_eq!(Place::new(path).expect("it is one").below, below, "{path}");
        }
        for path in [
            "..",
            "/home/user/..",
            "/home/users",
            "/etc/passwd",
            "/work/../etc",
            "a\0b",
        ] {
            let said = Place::new(path).expect_err(path).to_string();
            assert!(!said.contains("/x"), "{said}");
        }
        let root = Place::new("").expect("it is one");
        assert_eq!(
            (root.guest(), root.entry("a").guest()),
            ("/work".into(), "/work/a".into())
        );
        assert_eq!((root.as_str(), root.name()), (".", "work".into()));
    }
}
