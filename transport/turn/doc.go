// Package turn has a mutex that may be held across a wait.
//
// A goroutine that waits for a sync.Mutex stops virtual time in a bubble of testing/synctest. Where the holder itself waits
// for time, the two wait for each other, and the test hangs. So a mutex that is held while something takes long (opening a
// transport, registering memory, creating and destroying queue pairs) is a Turn; mutexes that are held for moments stay as
// they are.
package turn
