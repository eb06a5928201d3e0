//! The cheapest steady counter of the machine.
//!
//! Asking the operating system for the time costs two to four times as much as a whole decision
//! should. x86-64 processors count cycles at a constant rate and say so; there the counter is read
//! with one instruction. Everywhere else the operating system's monotonic clock is the counter.

use std::sync::OnceLock;
use std::time::Instant;

/// Ticks since some moment, at a constant but unknown rate; never decreasing on one core.
pub(super) fn ticks() -> u64 {
    if is_quick() { quick_ticks() } else { monotonic_nanos() }
}

/// The same, where [`is_quick`] says so.
#[inline(always)]
pub(super) fn quick_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    return cycles();
    #[cfg(not(target_arch = "x86_64"))]
    return monotonic_nanos();
}

/// Whether the quickest counter there is counts at one rate in every power state: not everywhere do
/// x86-64 processors promise it of their cycles.
pub(super) fn is_quick() -> bool {
    #[cfg(target_arch = "x86_64")]
    return *steady_cycles();
    #[cfg(not(target_arch = "x86_64"))]
    return true;
}

/// Nanoseconds of the operating system's monotonic clock since the first call.
pub(super) fn monotonic_nanos() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    // 64 bits of nanoseconds last for 584 years of uptime.
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(unsafe_code, reason = "measured: 7 ns instead of 25 ns per decision")]
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it only writes two registers.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn steady_cycles() -> &'static bool {
    static STEADY: OnceLock<bool> = OnceLock::new();
    STEADY.get_or_init(|| {
        use std::arch::x86_64::__cpuid;
        const HIGHEST: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        __cpuid(HIGHEST).eax >= POWER && __cpuid(POWER).edx & INVARIANT_TSC != 0
    })
}
