//! Calls host tools: functions of this process that guest code calls by name.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sandfork_egress::control::Question;

use super::cell::{OutgoingValue, ReceivedBuffers};
use crate::outcome::value::Buffers;
use crate::protocol::caller::ClientRequest;
use crate::protocol::{NamedError, ToolAnswer, ToolCall, ToolDeclaration, Value};
use crate::supervisor::{Opaque, Payload};

/// The arguments of a guest's call. They are untrusted.
#[derive(Debug)]
pub struct ToolArguments {
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub kwargs: BTreeMap<String, Value>,
    received: ReceivedBuffers,
}

impl ToolArguments {
    /// Returns the buffers to which the arguments refer.
    pub fn buffers(&self) -> Buffers<'_> {
        self.received.buffers()
    }
}

/// The function of a host tool. It returns a value, or the exception that the guest's call raises.
type ToolFunction = dyn FnMut(ToolArguments) -> Result<OutgoingValue, NamedError> + Send;

/// A host tool that a session has registered.
pub type Tool = Opaque<Box<ToolFunction>>;

/// Decides from host, port and addresses whether a connection is allowed.
type Decide = dyn FnMut(&str, u16, &[IpAddr]) -> bool + Send;

/// The function that decides on connections.
pub type Decider = Opaque<Box<Decide>>;

/// Returns the decision on a connection, which is undecided without a function.
pub fn decide(decider: Option<&mut Decider>, question: &Question) -> ClientRequest {
    ClientRequest::Decide {
        question: question.question,
        allowed: decider
            .map(|decider| (decider.0)(&question.host, question.port, &question.addresses)),
    }
}

/// Returns the declaration of a tool for the guest.
pub fn declaration(name: &str) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        doc: String::new(),
        signature: String::new(),
        ends_cell: false,
    }
}

/// Calls the tool that a guest named, and returns the reply.
pub fn answer(
    tools: &mut BTreeMap<String, Tool>,
    call: ToolCall,
    payload: Payload,
) -> (ToolAnswer, Payload) {
    let number = call.call;
    let returned = match tools.get_mut(&call.tool) {
        Some(tool) => (tool.0)(ToolArguments {
            args: call.args,
            kwargs: call.kwargs,
            received: ReceivedBuffers::new(call.blob, payload),
        }),
        None => Err(NamedError::new(
            "NameError",
            format!("the host has no tool `{}`", call.tool),
        )),
    };
    let packed = returned.and_then(|outgoing| {
        let packed = outgoing.pack();
        packed.map_err(|error| NamedError::new("ValueError", error.to_string()))
    });
    match packed {
        Ok((value, blob, payload)) => {
            let answer = ToolAnswer {
                call: number,
                value: Some(value),
                error: None,
                blob,
            };
            (answer, payload)
        }
        Err(error) => (ToolAnswer::raising(number, error), Payload::default()),
    }
}
