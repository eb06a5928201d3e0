//! Policies of ten rules and of a thousand, asked about requests that meet equally many.
//!
//! Every shape has a few rules that everybody meets and many that tell routes, tenants or methods
//! apart, of which a request meets one. Both sizes answer the same requests in turn, so that noise
//! meets both alike, and the last column proves equal work.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use serde::Serialize;
use tollgate::{Costs, Override, Policy, Rule, Subject};

use crate::Plan;
use crate::report::{Format, Times, hundredth};

/// The sizes that are compared.
const FEW: usize = 10;
const MANY: usize = 1_000;

/// Requests per run.
const REQUESTS: usize = 400_000;
const QUICK_REQUESTS: usize = 50_000;

/// What the rules of a policy ask for.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// A route each, exactly.
    Routes,
    /// Everything below a path each.
    Prefixes,
    /// A method and everything below a path each.
    MethodAndPrefix,
    /// A tenant each.
    Tenants,
    /// One rule, with an override for each tenant.
    Overrides,
}

impl Shape {
    const ALL: [Self; 5] =
        [Self::Routes, Self::Prefixes, Self::MethodAndPrefix, Self::Tenants, Self::Overrides];

    const fn name(self) -> &'static str {
        match self {
            Self::Routes => "exact routes",
            Self::Prefixes => "prefixes",
            Self::MethodAndPrefix => "method and prefix",
            Self::Tenants => "tenants",
            Self::Overrides => "overrides",
        }
    }

    fn rule(self, number: usize) -> Rule {
        let rule = Rule::new(format!("rule-{number}")).by("ip").quota("100/min");
        match self {
            Self::Routes => rule.when("route", format!("/api/v1/things/{number}")),
            Self::Prefixes => rule.when("route", format!("/api/v1/things/{number}/*")),
            Self::MethodAndPrefix => {
                rule.when("method", "POST").when("route", format!("/api/v1/things/{number}/*"))
            }
            Self::Tenants | Self::Overrides => rule.when("tenant", format!("tenant-{number}")),
        }
    }

    /// So many rules or overrides in all, two rules of them for everybody.
    fn policy(self, rules: usize) -> Policy {
        let everybody = Policy::builder()
            .rule(Rule::new("everybody").quota("100000/s"))
            .rule(Rule::new("per-ip").by("ip").quota("1000/min"));
        let numbers = 0..rules - 2;
        let builder = match self {
            Self::Overrides => {
                let plan = everybody.rule(Rule::new("plan").by("tenant").quota("10/min"));
                numbers.fold(plan, |builder, number| {
                    let more = Override::new("plan", "100/min");
                    builder.overriding(more.when("tenant", format!("tenant-{number}")))
                })
            }
            _ => numbers.fold(everybody, |builder, number| builder.rule(self.rule(number))),
        };
        builder.build().expect("the policies of the benchmark are right")
    }

    /// The values of a request that meets the rule of a number.
    fn request(self, number: usize) -> Request {
        let below = match self {
            Self::Prefixes | Self::MethodAndPrefix => "/parts/7",
            Self::Routes | Self::Tenants | Self::Overrides => "",
        };
        Request {
            ip: format!("192.0.2.{}", number % 250),
            route: format!("/api/v1/things/{number}{below}"),
            tenant: format!("tenant-{number}"),
        }
    }
}

/// What is known of a request.
struct Request {
    ip: String,
    route: String,
    tenant: String,
}

impl Request {
    fn subject(&self) -> Subject<'_> {
        Subject::new()
            .with("ip", &self.ip)
            .with("method", "POST")
            .with("route", &self.route)
            .with("tenant", &self.tenant)
    }
}

/// What one size of one shape took.
#[derive(Debug, Serialize)]
struct Row {
    section: &'static str,
    shape: &'static str,
    rules: usize,
    #[serde(flatten)]
    times: Times,
    /// Requests resolved by all runs.
    requests: usize,
    /// Charges they came to.
    charges: usize,
    /// How many times as long as with few rules.
    ratio_to_few: f64,
}

/// Measures every shape.
pub(crate) fn run(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    for shape in Shape::ALL {
        let rows = measure(plan, shape);
        match plan.format {
            Format::Json => {
                for row in &rows {
                    serde_json::to_writer(&mut *out, row)?;
                    writeln!(out)?;
                }
            }
            Format::Table => table(out, shape, &rows)?,
        }
        out.flush()?;
    }
    Ok(())
}

fn measure(plan: &Plan, shape: Shape) -> Vec<Row> {
    let sizes = [FEW, MANY];
    let policies = sizes.map(|rules| shape.policy(rules));
    // Requests both policies have a rule for, so that both do the same work.
    let requests: Vec<Request> = (0..FEW - 2).map(|number| shape.request(number)).collect();
    let subjects: Vec<Subject<'_>> = requests.iter().map(Request::subject).collect();
    let count = if plan.quick { QUICK_REQUESTS } else { REQUESTS };
    let mut nanos = sizes.map(|_| Vec::with_capacity(plan.runs));
    let mut charges = sizes.map(|_| 0);
    for run in 0..=plan.runs {
        for (place, policy) in policies.iter().enumerate() {
            let (time, charged) = pass(policy, &subjects, count);
            // The first warms up.
            if run > 0 {
                nanos[place].push(time);
                charges[place] += charged;
            }
        }
    }
    let times = nanos.map(Times::of);
    let rows = sizes.into_iter().zip(times).zip(charges);
    let row = |((rules, row), charges): ((usize, Times), usize)| Row {
        section: "policy",
        shape: shape.name(),
        rules,
        times: row,
        requests: count * plan.runs,
        charges,
        ratio_to_few: hundredth(row.median_ns / times[0].median_ns),
    };
    rows.map(row).collect()
}

/// Nanoseconds per request, and the charges of all.
fn pass(policy: &Policy, subjects: &[Subject<'_>], count: usize) -> (f64, usize) {
    let costs = Costs::default();
    let mut charged = 0;
    let start = Instant::now();
    for subject in subjects.iter().cycle().take(count) {
        let resolution = policy.resolve(black_box(subject), &costs);
        charged += resolution.charges().map_or(0, |charges| charges.set().len());
    }
    (start.elapsed().as_nanos() as f64 / count as f64, charged)
}

fn table(out: &mut impl Write, shape: Shape, rows: &[Row]) -> io::Result<()> {
    let title = shape.name();
    writeln!(
        out,
        "\n{title:<20} {:>8} {:>15} {:>9} {:>12} {:>12}",
        "ns", "min–max", "× ten", "requests", "charges"
    )?;
    for row in rows {
        let Times { median_ns, min_ns, max_ns, .. } = row.times;
        writeln!(
            out,
            "  {:<18} {median_ns:>8.1} {:>15} {:>9.2} {:>12} {:>12}",
            format!("{} rules", row.rules),
            format!("{min_ns:.1}–{max_ns:.1}"),
            row.ratio_to_few,
            row.requests,
            row.charges,
        )?;
    }
    Ok(())
}
