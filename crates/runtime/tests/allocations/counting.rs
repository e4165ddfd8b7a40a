//! A global allocator that counts what is taken while [`counted`] runs, on the calling thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    backtrace::Backtrace,
    cell::Cell,
};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Backtraces still to be printed; for whoever looks for an allocation.
    static TRACES: Cell<u32> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is handed to the system's allocator as it is; counting touches thread-locals that need no allocation and
// are gone before the thread's memory is (`try_with`).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count() {
    if INSIDE.try_with(Cell::get) != Ok(true) {
        return;
    }
    let _ = COUNT.try_with(|n| n.set(n.get() + 1));
    if TRACES.try_with(Cell::get).unwrap_or(0) > 0 {
        INSIDE.with(|inside| inside.set(false));
        TRACES.with(|left| left.set(left.get() - 1));
        println!("allocation:\n{}", Backtrace::force_capture());
        INSIDE.with(|inside| inside.set(true));
    }
}

/// Runs product code: what it allocates counts.
pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let result = work();
    INSIDE.set(before);
    result
}

/// Allocations counted so far on this thread.
pub fn total() -> u64 {
    COUNT.get()
}

/// The next so many allocations are printed with their backtraces.
pub fn trace(next: u32) {
    TRACES.set(next);
}
