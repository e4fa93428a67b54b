use super::attend::Live;
use super::caller::Caller;
use super::hear::refuse;
use crate::protocol::caller::{ErrorWord, FileRequest};

impl Live<'_> {
    pub(super) fn file(&mut self, request: &FileRequest, caller: &mut dyn Caller) {
        refuse(caller, Some(request.id), ErrorWord::File, "not yet".into());
    }
}
