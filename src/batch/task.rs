//! One task of a batch.

use std::sync::Arc;

use super::{Expect, TaskId};
use crate::policy::Policy;
use crate::supervisor::Request;

/// A request with an id, and the policy that it is run under.
#[derive(Clone, Debug)]
pub struct Task {
    pub(super) id: TaskId,
    pub(super) request: Request,
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) expect: Option<Expect>,
}

impl Task {
    /// A task under the batch's policy. The id need not be unique, but it identifies the result.
    ///
    /// If no sandbox could be provided at first, the request is run again, so its standard input
    /// should be [`bytes`](Request::stdin_bytes). It is cancelled with the batch, not by its own
    /// [`Cancel`](crate::Cancel).
    pub fn new(id: impl Into<TaskId>, request: impl Into<Request>) -> Self {
        Self {
            id: id.into(),
            request: request.into(),
            policy: None,
            expect: None,
        }
    }

    /// Sets another policy. All tasks under policies of the same effect share one sandbox.
    #[must_use]
    pub fn policy(mut self, policy: Arc<Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets what the outcome is compared with.
    #[must_use]
    pub(crate) fn expect(mut self, expect: Option<Expect>) -> Self {
        self.expect = expect;
        self
    }

    /// The task's id.
    pub fn id(&self) -> &TaskId {
        &self.id
    }
}
