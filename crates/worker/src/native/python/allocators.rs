//! Wraps CPython's allocators with a check of each allocation
//! (<https://docs.python.org/3/c-api/memory.html#customize-memory-allocators>).

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use nix::libc;

use super::object::Object;

/// A policy that admits or refuses the interpreter's allocations.
pub trait Admission {
    /// Returns whether a block of `size` bytes may be allocated. `replaced` returns the size of the block that it
    /// replaces.
    fn admits(size: usize, replaced: impl FnOnce() -> usize) -> bool;
}

/// `PyMemAllocatorEx` of CPython's Include/cpython/pymem.h, unchanged since 3.5, and `PyDataMemAllocator` of numpy's
/// ndarraytypes.h, which differ in the signature of `free`. Neither is part of a stable ABI.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Allocator<Free> {
    ctx: *mut c_void,
    malloc: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: Free,
}

/// A function that frees a block.
type FreeBlock = extern "C" fn(*mut c_void, *mut c_void);
/// A function that frees a block of known size.
pub(super) type FreeSized = extern "C" fn(*mut c_void, *mut c_void, usize);

/// `PyObjectArenaAllocator` of CPython's Include/cpython/objimpl.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArenaAllocator {
    ctx: *mut c_void,
    alloc: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: FreeSized,
}

/// `PYMEM_DOMAIN_RAW`: the C library's malloc(3), to which the other domains delegate blocks larger than 512 bytes.
/// They place smaller objects in arenas.
const RAW: c_int = 0;

unsafe extern "C" {
    fn PyMem_GetAllocator(domain: c_int, allocator: *mut Allocator<FreeBlock>);
    fn PyMem_SetAllocator(domain: c_int, allocator: *mut Allocator<FreeBlock>);
    fn PyObject_GetArenaAllocator(allocator: *mut ArenaAllocator);
    fn PyObject_SetArenaAllocator(allocator: *mut ArenaAllocator);
}

/// Makes `A` check each block and each arena that the interpreter allocates from now on.
///
/// A debug build stores extra words around each block, so the size of a replaced block could not be queried. Its
/// objects are not checked.
pub fn guard_allocators<A: Admission>() {
    if Object::system(c"gettotalrefcount").is_some() {
        return;
    }
    // SAFETY: called from a function of the module, so with the GIL held, by the process's only thread. The structures
    // are those of CPython's headers, and the calls write to them or copy them.
    unsafe {
        let mut block = MaybeUninit::uninit();
        PyMem_GetAllocator(RAW, block.as_mut_ptr());
        let mut guarded = guarded::<A, _>(block.assume_init(), free_block);
        PyMem_SetAllocator(RAW, &raw mut guarded);
        let mut arena = MaybeUninit::uninit();
        PyObject_GetArenaAllocator(arena.as_mut_ptr());
        let mut guarded = ArenaAllocator {
            ctx: kept(arena.assume_init()),
            alloc: alloc_arena::<A>,
            free: free_arena,
        };
        PyObject_SetArenaAllocator(&raw mut guarded);
    }
}

/// A listener for CPython's arena allocations.
pub trait ArenaLog {
    /// Called after an arena was allocated.
    fn made(address: u64, size: u64);
    /// Called before the arena at this address is freed.
    fn freed(address: u64);
}

/// Makes `L` observe each arena that is allocated or freed from now on.
pub fn log_arenas<L: ArenaLog>() {
    // SAFETY: as in `guard_allocators`.
    unsafe {
        let mut arena = MaybeUninit::uninit();
        PyObject_GetArenaAllocator(arena.as_mut_ptr());
        let mut logged = ArenaAllocator {
            ctx: kept(arena.assume_init()),
            alloc: alloc_logged_arena::<L>,
            free: free_logged_arena::<L>,
        };
        PyObject_SetArenaAllocator(&raw mut logged);
    }
}

/// Returns `before` with `A` checking each allocation. `before` must be the C library's allocator.
pub(super) fn guarded<A: Admission, F: Copy>(before: Allocator<F>, free: F) -> Allocator<F> {
    Allocator {
        ctx: kept(before),
        malloc: malloc::<A, F>,
        calloc: calloc::<A, F>,
        realloc: realloc::<A, F>,
        free,
    }
}

/// Leaks the previous allocator, because every later call of the wrapper needs it.
fn kept<T>(before: T) -> *mut c_void {
    ptr::from_mut(Box::leak(Box::new(before))).cast()
}

/// Returns the allocator that `kept` has leaked.
fn before<T: Copy>(ctx: *mut c_void) -> T {
    // SAFETY: only the functions below call this, each with the `ctx` that it was registered with: a leaked value of
    // this type, which is never written to.
    unsafe { *ctx.cast() }
}

extern "C" fn malloc<A: Admission, F: Copy>(ctx: *mut c_void, size: usize) -> *mut c_void {
    if !A::admits(size, || 0) {
        return ptr::null_mut();
    }
    let before: Allocator<F> = before(ctx);
    (before.malloc)(before.ctx, size)
}

extern "C" fn calloc<A: Admission, F: Copy>(
    ctx: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    if !A::admits(count.saturating_mul(size), || 0) {
        return ptr::null_mut();
    }
    let before: Allocator<F> = before(ctx);
    (before.calloc)(before.ctx, count, size)
}

extern "C" fn realloc<A: Admission, F: Copy>(
    ctx: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller passes null or a block of this allocator, which is the C library's.
    if !A::admits(size, || unsafe { libc::malloc_usable_size(block) }) {
        return ptr::null_mut();
    }
    let before: Allocator<F> = before(ctx);
    (before.realloc)(before.ctx, block, size)
}

extern "C" fn free_block(ctx: *mut c_void, block: *mut c_void) {
    let before: Allocator<FreeBlock> = before(ctx);
    (before.free)(before.ctx, block);
}

pub(super) extern "C" fn free_sized(ctx: *mut c_void, block: *mut c_void, size: usize) {
    let before: Allocator<FreeSized> = before(ctx);
    (before.free)(before.ctx, block, size);
}

extern "C" fn alloc_arena<A: Admission>(ctx: *mut c_void, size: usize) -> *mut c_void {
    if !A::admits(size, || 0) {
        return ptr::null_mut();
    }
    let before: ArenaAllocator = before(ctx);
    (before.alloc)(before.ctx, size)
}

extern "C" fn free_arena(ctx: *mut c_void, arena: *mut c_void, size: usize) {
    let before: ArenaAllocator = before(ctx);
    (before.free)(before.ctx, arena, size);
}

extern "C" fn alloc_logged_arena<L: ArenaLog>(ctx: *mut c_void, size: usize) -> *mut c_void {
    let before: ArenaAllocator = before(ctx);
    let arena = (before.alloc)(before.ctx, size);
    if !arena.is_null() {
        L::made(arena as u64, size as u64);
    }
    arena
}

extern "C" fn free_logged_arena<L: ArenaLog>(ctx: *mut c_void, arena: *mut c_void, size: usize) {
    let before: ArenaAllocator = before(ctx);
    L::freed(arena as u64);
    (before.free)(before.ctx, arena, size);
}
