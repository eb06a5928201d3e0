//! A limiter inside a program: five requests a minute for each user, no server, no configuration.

use tollgate::{Algorithm, Cost, MemoryStore, Meter, Retry};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::new();
    let meter = Meter::new("5/min".parse()?, Algorithm::TokenBucket)?;
    let mut passed = 0;
    for request in 1..=7 {
        let decision = store.take("user:42", meter, Cost::ONE);
        match decision.retry() {
            Retry::Now => println!("request {request}: allowed"),
            Retry::After(wait) => println!("request {request}: refused, again in {wait}"),
            Retry::Never => println!("request {request}: refused, it can never fit"),
        }
        passed += u32::from(decision.is_allowed());
    }
    assert_eq!(passed, 5);
    Ok(())
}
