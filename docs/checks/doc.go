// Package checks has a page for each check of `ncclmesh doctor`: what people see, how it is
// found, what to do, and where that is known from. `ncclmesh explain` prints them.
package checks
