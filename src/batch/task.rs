//! One task of a batch.

use std::sync::Arc;

use super::TaskId;
use crate::policy::Policy;
use crate::supervisor::Request;

/// A request with a name, and the policy that it is run under.
#[derive(Clone, Debug)]
pub struct Task {
    pub(super) id: TaskId,
    pub(super) request: Request,
    pub(super) policy: Option<Arc<Policy>>,
}

impl Task {
    /// A task under the batch's policy. Nothing demands that the id is the only one of its kind, but
    /// the results are told apart by it.
    ///
    /// The request may be run more than once, where no sandbox could be provided at first: what it
    /// reads on its standard input should be [`bytes`](Request::stdin_bytes). It is called off with
    /// the batch, and not by a [`Cancel`](crate::Cancel) of its own.
    pub fn new(id: impl Into<TaskId>, request: impl Into<Request>) -> Self {
        Self {
            id: id.into(),
            request: request.into(),
            policy: None,
        }
    }

    /// Under this policy instead. All tasks under policies of one effect share one sandbox.
    #[must_use]
    pub fn policy(mut self, policy: Arc<Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Its name.
    pub fn id(&self) -> &TaskId {
        &self.id
    }
}
