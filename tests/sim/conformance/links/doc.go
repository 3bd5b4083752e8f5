// Package links holds what package topology reports of the kernel's network interfaces against interfaces that its test makes.
package links
