package ibv

// symbols are the addresses of libibverbs' functions; 0 where an optional one is missing.
type symbols struct {
	getDeviceList, freeDeviceList, getDeviceName, getDeviceGUID uintptr
	openDevice, closeDevice                                     uintptr
	queryDevice, queryPort                                      uintptr
	queryPortSpeed                                              uintptr
	getAsyncEvent, ackAsyncEvent                                uintptr
	allocPD, deallocPD                                          uintptr
	regMR, regMRIova2, regDmabufMR, deregMR                     uintptr
	createCompChannel, destroyCompChannel                       uintptr
	createCQ, destroyCQ, getCQEvent, ackCQEvents                uintptr
	createQP, modifyQP, queryQP, destroyQP                      uintptr
	queryECE, setECE                                            uintptr
	forkInit, eventTypeStr, wcStatusStr                         uintptr
}

type symbol struct {
	name, version string
	required      bool
	addr          *uintptr
}

func (s *symbols) table() []symbol {
	return []symbol{
		{"ibv_get_device_list", "IBVERBS_1.1", true, &s.getDeviceList},
		{"ibv_free_device_list", "IBVERBS_1.1", true, &s.freeDeviceList},
		{"ibv_get_device_name", "IBVERBS_1.1", true, &s.getDeviceName},
		{"ibv_get_device_guid", "IBVERBS_1.1", true, &s.getDeviceGUID},
		{"ibv_open_device", "IBVERBS_1.1", true, &s.openDevice},
		{"ibv_close_device", "IBVERBS_1.1", true, &s.closeDevice},
		{"ibv_query_device", "IBVERBS_1.1", true, &s.queryDevice},
		{"ibv_query_port", "IBVERBS_1.1", true, &s.queryPort},
		{"ibv_query_port_speed", "IBVERBS_1.16", false, &s.queryPortSpeed},
		{"ibv_get_async_event", "IBVERBS_1.1", true, &s.getAsyncEvent},
		{"ibv_ack_async_event", "IBVERBS_1.1", true, &s.ackAsyncEvent},
		{"ibv_alloc_pd", "IBVERBS_1.1", true, &s.allocPD},
		{"ibv_dealloc_pd", "IBVERBS_1.1", true, &s.deallocPD},
		{"ibv_reg_mr", "IBVERBS_1.1", true, &s.regMR},
		{"ibv_reg_mr_iova2", "IBVERBS_1.8", false, &s.regMRIova2},
		{"ibv_reg_dmabuf_mr", "IBVERBS_1.12", false, &s.regDmabufMR},
		{"ibv_dereg_mr", "IBVERBS_1.1", true, &s.deregMR},
		{"ibv_create_comp_channel", "IBVERBS_1.0", true, &s.createCompChannel},
		{"ibv_destroy_comp_channel", "IBVERBS_1.0", true, &s.destroyCompChannel},
		{"ibv_create_cq", "IBVERBS_1.1", true, &s.createCQ},
		{"ibv_destroy_cq", "IBVERBS_1.1", true, &s.destroyCQ},
		{"ibv_get_cq_event", "IBVERBS_1.1", true, &s.getCQEvent},
		{"ibv_ack_cq_events", "IBVERBS_1.1", true, &s.ackCQEvents},
		{"ibv_create_qp", "IBVERBS_1.1", true, &s.createQP},
		{"ibv_modify_qp", "IBVERBS_1.1", true, &s.modifyQP},
		{"ibv_query_qp", "IBVERBS_1.1", true, &s.queryQP},
		{"ibv_destroy_qp", "IBVERBS_1.1", true, &s.destroyQP},
		{"ibv_query_ece", "IBVERBS_1.10", false, &s.queryECE},
		{"ibv_set_ece", "IBVERBS_1.10", false, &s.setECE},
		{"ibv_fork_init", "IBVERBS_1.1", false, &s.forkInit},
		{"ibv_event_type_str", "IBVERBS_1.1", false, &s.eventTypeStr},
		{"ibv_wc_status_str", "IBVERBS_1.1", false, &s.wcStatusStr},
	}
}
