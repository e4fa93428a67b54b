//! Wraps the few calls of CPython's stable ABI (PEP 384) that the zygote's extension module needs.
//!
//! The interpreter that loads the module provides the symbols: libpython is not linked.
#![allow(unsafe_code)]

mod allocators;
mod arrays;
mod object;

use std::ffi::CStr;
use std::ptr::{self, NonNull};

use pyo3_ffi::{
    METH_O, Py_DecRef, PyBool_FromLong, PyCFunction, PyErr_Occurred, PyErr_SetString,
    PyExc_RuntimeError, PyLong_AsLong, PyLong_FromLongLong, PyMethodDef, PyMethodDefPointer,
    PyModule_Create, PyModuleDef, PyModuleDef_HEAD_INIT, PyOS_AfterFork_Child,
    PyOS_AfterFork_Parent, PyOS_BeforeFork, PyObject, PyObject_GetAttrString, PyObject_Type,
    PyStructSequence_New, PyStructSequence_SetItem, PySys_GetObject, PySys_SetObject,
};
use serde::Deserialize;

pub use self::allocators::{Admission, ArenaLog, guard_allocators, log_arenas};
pub use self::arrays::guard_arrays;
pub use self::object::{
    Mode, Object, Plain, Raised, clear_exception, compile, evaluate, handle_signals,
};

/// Builds a module's function table. Each entry has a calling convention, a Python name and a Rust function.
macro_rules! functions {
    ($($call:ident $name:literal => $function:path,)+) => {
        vec![
            $({
                extern "C" fn called(_: *mut PyObject, argument: *mut PyObject) -> *mut PyObject {
                    $crate::native::python::$call(argument, $function)
                }
                $crate::native::python::row($name, called)
            },)+
            $crate::native::python::end_of_functions(),
        ]
    };
}
pub(crate) use functions;

/// Returns an entry of the table.
pub fn row(name: &'static CStr, function: PyCFunction) -> PyMethodDef {
    PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: PyMethodDefPointer {
            PyCFunction: function,
        },
        ml_flags: METH_O,
        ml_doc: ptr::null(),
    }
}

/// Returns the sentinel that ends the table.
pub fn end_of_functions() -> PyMethodDef {
    PyMethodDef::zeroed()
}

/// Creates the module object from a table of `functions!`.
///
/// Definition and table are leaked, because an extension module's definition lives as long as the process.
pub fn create_module(name: &'static CStr, methods: Vec<PyMethodDef>) -> *mut PyObject {
    let definition = PyModuleDef {
        m_base: PyModuleDef_HEAD_INIT,
        m_name: name.as_ptr(),
        m_doc: ptr::null(),
        m_size: -1,
        m_methods: methods.leak().as_mut_ptr(),
        m_slots: ptr::null_mut(),
        m_traverse: None,
        m_clear: None,
        m_free: None,
    };
    // SAFETY: called from the module's init function, so with the GIL held. The definition and its table are leaked and
    // so outlive the module.
    unsafe { PyModule_Create(Box::leak(Box::new(definition))) }
}

/// Calls a function that takes and returns text. Raises its error as `RuntimeError`.
pub fn text(
    argument: *mut PyObject,
    function: impl FnOnce(&str) -> Result<String, String>,
) -> *mut PyObject {
    object(argument, |argument| {
        let reply = function(&argument.to_text()?).map_err(|message| raise(&message))?;
        Object::text(&reply)
    })
}

/// Calls a function that takes and returns an object. Returns what the interpreter expects: a new reference, or null
/// with an exception set.
pub fn object(
    argument: *mut PyObject,
    function: impl FnOnce(&Object) -> Result<Object, Raised>,
) -> *mut PyObject {
    let Some(argument) = NonNull::new(argument).map(Object::borrowed) else {
        return ptr::null_mut();
    };
    function(&argument).map_or_else(|Raised| ptr::null_mut(), Object::into_raw)
}

/// Sets a `RuntimeError`, unless an exception is already set.
pub fn raise(message: &str) -> Raised {
    let message = std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the interpreter called this module and holds the GIL; the message is copied.
    unsafe {
        if PyErr_Occurred().is_null() {
            PyErr_SetString(PyExc_RuntimeError, message.as_ptr());
        }
    }
    Raised
}

/// The value of a field of `sys.flags`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Flag {
    /// A field that is a `bool`, such as `safe_path`.
    Switch(bool),
    /// A field that is an `int`.
    Number(i64),
}

/// Replaces `sys.flags` by an object of the same type with these values, one for each field. Python code cannot create
/// such an object.
pub fn set_flags(values: &[Flag]) -> Result<(), String> {
    // SAFETY: called from a function of the module, so with the GIL held. The type is that of a live object. A new
    // object of the type has as many fields as `n_fields`, and the loop fills each once; `SetItem` steals the new
    // reference. A failed call returns null, which is not used.
    unsafe {
        let old = PySys_GetObject(c"flags".as_ptr());
        if old.is_null() {
            return Err("the interpreter has no sys.flags".into());
        }
        let kind = PyObject_Type(old);
        let count = PyObject_GetAttrString(kind, c"n_fields".as_ptr());
        let fields = PyLong_AsLong(count);
        Py_DecRef(count);
        let new = PyStructSequence_New(kind.cast());
        Py_DecRef(kind);
        if new.is_null() || usize::try_from(fields) != Ok(values.len()) {
            return Err(format!("sys.flags has {fields} fields"));
        }
        for (index, value) in (0..).zip(values) {
            let item = match *value {
                Flag::Switch(value) => PyBool_FromLong(value.into()),
                Flag::Number(value) => PyLong_FromLongLong(value),
            };
            PyStructSequence_SetItem(new, index, item);
        }
        let status = PySys_SetObject(c"flags".as_ptr(), new);
        Py_DecRef(new);
        if status == 0 {
            Ok(())
        } else {
            Err("sys.flags cannot be set".into())
        }
    }
}

/// Prepares the interpreter for a fork, in the parent.
pub fn before_fork() {
    // SAFETY: called from a function of the module, so with the GIL held.
    unsafe { PyOS_BeforeFork() }
}

/// Reverts the preparations, in the parent.
pub fn after_fork_in_parent() {
    // SAFETY: as above, and after `before_fork`.
    unsafe { PyOS_AfterFork_Parent() }
}

/// Restores the interpreter in the child, and runs the `os.register_at_fork` hooks.
pub fn after_fork_in_child() {
    // SAFETY: as above, in the child of the fork that followed `before_fork`.
    unsafe { PyOS_AfterFork_Child() }
}
