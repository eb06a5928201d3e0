//! The script keeps every guarantee of the contract, on a clock the tests drive.

use tollgate_testkit::conformance::{composite, ops, promise, single};
use tollgate_testkit::ready::ready;

use crate::server::bench;

#[test]
fn the_limit_passes_and_no_more() {
    ready(single::the_limit_passes_and_no_more(&bench()));
}

#[test]
fn a_cost_beyond_capacity_is_never() {
    ready(single::a_cost_beyond_capacity_is_never(&bench()));
}

#[test]
fn a_refusal_changes_nothing() {
    ready(single::a_refusal_changes_nothing(&bench()));
}

#[test]
fn a_promise_is_exact() {
    ready(single::a_promise_is_exact(&bench()));
}

#[test]
fn only_a_leaky_bucket_delays() {
    ready(single::only_a_leaky_bucket_delays(&bench()));
}

#[test]
fn a_changed_limit_is_fair() {
    ready(single::a_changed_limit_is_fair(&bench()));
}

#[test]
fn buckets_are_apart() {
    ready(single::buckets_are_apart(&bench()));
}

#[test]
fn a_peek_takes_nothing() {
    ready(ops::a_peek_takes_nothing(&bench()));
}

#[test]
fn a_refund_gives_back_what_was_taken() {
    ready(ops::a_refund_gives_back_what_was_taken(&bench()));
}

#[test]
fn a_refund_out_of_time_gives_nothing() {
    ready(ops::a_refund_out_of_time_gives_nothing(&bench()));
}

#[test]
fn a_reset_forgets() {
    ready(ops::a_reset_forgets(&bench()));
}

#[test]
fn a_refund_goes_through_in_a_refused_set() {
    ready(ops::a_refund_goes_through_in_a_refused_set(&bench()));
}

#[test]
fn a_lease_takes_what_is_left() {
    ready(ops::a_lease_takes_what_is_left(&bench()));
}

#[test]
fn a_set_is_all_or_nothing() {
    ready(composite::a_set_is_all_or_nothing(&bench()));
}

#[test]
fn a_shadow_never_blocks() {
    ready(composite::a_shadow_never_blocks(&bench()));
}

#[test]
fn a_group_refuses_only_together() {
    ready(composite::a_group_refuses_only_together(&bench()));
}

#[test]
fn groups_are_apart() {
    ready(composite::groups_are_apart(&bench()));
}

#[test]
fn one_bucket_twice_adds_up() {
    ready(composite::one_bucket_twice_adds_up(&bench()));
}

#[test]
fn sets_are_decided_in_order_and_apart() {
    ready(composite::sets_are_decided_in_order_and_apart(&bench()));
}

#[test]
fn a_set_waits_for_the_slowest() {
    ready(promise::a_set_waits_for_the_slowest(&bench()));
}

#[test]
fn the_longest_refusal_binds() {
    ready(promise::the_longest_refusal_binds(&bench()));
}

#[test]
fn the_least_share_binds() {
    ready(promise::the_least_share_binds(&bench()));
}

#[test]
fn a_clock_that_steps_back_is_harmless() {
    ready(promise::a_clock_that_steps_back_is_harmless(&bench()));
}
