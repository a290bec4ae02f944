//! The allocator of the program, and what of it only parts need that stay.

use tikv_jemalloc_sys::mallctl;

/// glibc's arenas bloat under many small, short-lived allocations from several threads.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Gives memory that was freed back by a thread in the background, also while nothing else runs. A command that ends at once has no use for the thread:
/// to start it takes as long as much of what kubectl does.
pub fn give_back_in_background() {
    set_background_thread(true);
}

#[expect(unsafe_code, reason = "the allocator is asked in C")]
fn set_background_thread(mut wanted: bool) {
    // SAFETY: the name ends in a zero, and the value is a bool of the size that is said. Nothing is to be read.
    let refused = unsafe {
        mallctl(
            c"background_thread".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut wanted).cast(),
            size_of::<bool>(),
        )
    };
    // Nothing is wrong without the thread: pages go back when more is allocated.
    if refused != 0 {
        eprintln!("trireme: the allocator has no background thread: error {refused}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "the allocator is asked in C")]
    fn background_thread() -> bool {
        let (mut runs, mut size) = (false, size_of::<bool>());
        // SAFETY: the name ends in a zero, and there is room for a bool of the size that is said.
        let refused = unsafe {
            mallctl(c"background_thread".as_ptr(), (&raw mut runs).cast(), &raw mut size, std::ptr::null_mut(), 0)
        };
        assert_eq!(refused, 0);
        runs
    }

    #[test]
    fn the_thread_runs_once_it_is_wanted_and_not_before() {
        assert!(!background_thread());
        give_back_in_background();
        assert!(background_thread());
    }
}
