// Package packages tests what make packages makes, with the tools that people install it with: dpkg and rpm.
//
// Every time: the README's commands run in a clean clone as they are written, all that can; two packings give the same bytes,
// dpkg installs into an empty root directory what runs there, rpm reads and installs its own, programs in C and Python use the
// library from there and from below ~/.local, and removing leaves nothing.
// Every package has all pages for users, whose links lead to files of the same package.
// With FULL=1 also: two builds in two places, and a clean Debian in which apt installs and removes.
package packages
