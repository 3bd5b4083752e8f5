package cuda

// BufferID asks the driver that is loaded for [Driver.BufferID]. Nothing is known without one.
func BufferID(addr uintptr) (id uint64, known bool) {
	d, err := Loaded()
	if err != nil {
		return 0, false
	}
	return d.BufferID(addr)
}

// FlushWrites asks the driver that is loaded for [Driver.FlushWrites].
func FlushWrites() error {
	d, err := Loaded()
	if err != nil {
		return err
	}
	return d.FlushWrites()
}
