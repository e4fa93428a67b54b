//! Checks the allocations of numpy's arrays (NEP 49), which come from the C library and not from the interpreter.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::{self, NonNull};

use pyo3_ffi::{PyCapsule_GetPointer, PyCapsule_New, PyObject};

use super::allocators::{Admission, Allocator, FreeSized, free_sized, guarded};
use super::object::{Object, Raised, clear_exception};

/// `PyDataMem_Handler` of numpy's ndarraytypes.h, version 1.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator<FreeSized>,
}

const CAPSULE: &CStr = c"mem_handler";

/// Indexes into numpy's function table (numpy_api.py), which are the same in all versions of an ABI.
const ABI_VERSION: usize = 0;
const API_VERSION: usize = 211;
const SET_HANDLER: usize = 304;
const GET_HANDLER: usize = 305;

/// `NPY_VERSION` of numpy 1 and of numpy 2.
const KNOWN_ABIS: [c_uint; 2] = [0x0100_0009, 0x0200_0000];
/// `NPY_1_22_API_VERSION`, the first with handlers.
const MIN_API: c_uint = 0xf;

/// Makes `A` check the data of each array that the calling thread creates from now on.
///
/// `module` contains numpy's function table. Does nothing for an unknown version or one without handlers.
pub fn guard_arrays<A: Admission>(module: &Object) {
    if guard::<A>(module).is_err() {
        clear_exception();
    }
}

fn guard<A: Admission>(module: &Object) -> Result<(), Raised> {
    let table = module.attribute(c"_ARRAY_API")?;
    // SAFETY: called from a function of the module, so with the GIL held. The capsule belongs to the module, and
    // numpy's table lives as long as the process. Its functions have these types in the versions that are checked for.
    // The handler is leaked, because arrays keep a reference to its capsule, which does not own the handler.
    unsafe {
        let table = pointer(&table, ptr::null())?
            .cast::<*const c_void>()
            .as_ptr();
        let version = |place: usize| -> c_uint {
            let ask: extern "C" fn() -> c_uint = std::mem::transmute(*table.add(place));
            ask()
        };
        if !KNOWN_ABIS.contains(&version(ABI_VERSION)) || version(API_VERSION) < MIN_API {
            return Ok(());
        }
        let get: extern "C" fn() -> *mut PyObject = std::mem::transmute(*table.add(GET_HANDLER));
        let set: extern "C" fn(*mut PyObject) -> *mut PyObject =
            std::mem::transmute(*table.add(SET_HANDLER));
        let before = Object::owned(get())?;
        let before = pointer(&before, CAPSULE.as_ptr())?
            .cast::<Handler>()
            .as_ptr();
        let own = Box::new(Handler {
            name: (*before).name,
            version: (*before).version,
            allocator: guarded::<A, _>((*before).allocator, free_sized),
        });
        let own = ptr::from_mut(Box::leak(own)).cast::<c_void>();
        let capsule = Object::owned(PyCapsule_New(own, CAPSULE.as_ptr(), None))?;
        Object::owned(set(capsule.as_ptr())).map(drop)
    }
}

/// Returns the pointer in a capsule of this name.
fn pointer(capsule: &Object, name: *const c_char) -> Result<NonNull<c_void>, Raised> {
    // SAFETY: the name is null or a live string, and the call checks the type.
    NonNull::new(unsafe { PyCapsule_GetPointer(capsule.as_ptr(), name) }).ok_or(Raised)
}
