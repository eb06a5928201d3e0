//! tollgate-tower
