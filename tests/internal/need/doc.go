// Package need says which programs and headers this machine lacks, and what
// to install for them.
package need
