//! Resolving allocates for rules that apply, and for no other. Alone in its file, for it counts
//! every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tollgate::policy::PolicyBuilder;
use tollgate::{Costs, Missing, Override, Policy, Rule, Subject};

/// The system's allocator, counting per thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

fn allocations<T>(act: impl FnOnce() -> T) -> usize {
    let before = COUNT.with(Cell::get);
    let kept = act();
    let after = COUNT.with(Cell::get);
    drop(kept);
    after - before
}

/// Rules that do not apply to the subject below, each for another reason.
fn with_bystanders(policy: PolicyBuilder) -> PolicyBuilder {
    let policy = (0..200).fold(policy, |policy, index| {
        let route = Rule::new(format!("route-{index}")).when("route", format!("/other/{index}/*"));
        policy.rule(route.by("ip").quota("1/s; 9/min"))
    });
    policy
        .rule(Rule::new("tokens").unit("tokens").by("ip").quota("1/s").hash())
        .rule(Rule::new("user").by("user").quota("1/s"))
        .rule(Rule::new("watch").by("user").quota("1/s").missing(Missing::Deny).shadow())
        .rule(Rule::new("glob").when("route", "*?x*y*").quota("1/s"))
        .overriding(Override::new("user", "5/s").when("user", "u-*"))
        .allow("ip", "127.*")
        .allow_network("ip", "10.0.0.0/8")
        .deny_network("ip", "2001:db8::/32")
}

#[test]
fn rules_that_do_not_apply_cost_no_allocation() {
    let subject =
        Subject::new().with("ip", "192.0.2.7").with("route", "/api/search").with("unheard-of", "x");
    let costs = Costs::default();
    let count = |policy: PolicyBuilder| {
        let policy = policy.build().unwrap_or_else(|errors| panic!("{errors}"));
        allocations(|| policy.resolve(&subject, &costs))
    };
    assert_eq!(count(with_bystanders(Policy::builder())), 0);
    let applying = |name: &str| Policy::builder().rule(Rule::new(name).by("ip").quota("1/s"));
    assert_eq!(count(applying("ip")), 0, "a short key is kept in place");
    assert_eq!(count(with_bystanders(applying("ip"))), 0);
    let long = "a-rule-with-a-name-of-more-than-32-bytes";
    for name in [long, "short-until-the-address"] {
        assert_eq!(count(applying(name)), 1, "the key of the one rule that applies");
        assert_eq!(count(with_bystanders(applying(name))), 1);
    }
}
