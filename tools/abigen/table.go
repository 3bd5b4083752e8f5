package main

// A mirror is a Go struct laid out as a C struct. Members that are not listed become padding; of a union only the
// listed arm is seen.
type mirror struct {
	goName, c string

	// room is the size of the Go struct when it exceeds the C one. Structures that C fills in and that grow at the end
	// from release to release get it, so that a newer library finds the space it expects.
	room int

	fields []field
}

type field struct {
	goName, path string // path: C member names joined by dots

	// later is the place of a member that old headers do not have; headers that have it must agree.
	later *member
}

// An anchor is an offset relative to another member, for structures that grow at the front.
type anchor struct {
	goName, c, path, from string
}

// constants are enumerators that keep their C spelling. With a names variable, a map from value to spelling is written too.
type constants struct {
	comment string
	names   string
	list    []string
}

// renamed holds the constants whose public name is a macro for an enumerator of another name.
var renamed = map[string]string{
	"IBV_QPF_GRH_REQUIRED":      "IB_UVERBS_QPF_GRH_REQUIRED",
	"IBV_ACCESS_OPTIONAL_RANGE": "IB_UVERBS_ACCESS_OPTIONAL_RANGE",
}

// goTypes are C types with a Go type written by hand.
var goTypes = map[string]string{
	"union ibv_gid": "GID",
}

var mirrors = []mirror{
	// What is posted and polled.
	{goName: "SGE", c: "ibv_sge", fields: []field{
		{goName: "Addr", path: "addr"},
		{goName: "Length", path: "length"},
		{goName: "LKey", path: "lkey"},
	}},
	{goName: "SendWR", c: "ibv_send_wr", fields: []field{
		{goName: "WRID", path: "wr_id"},
		{goName: "Next", path: "next"},
		{goName: "SGList", path: "sg_list"},
		{goName: "NumSGE", path: "num_sge"},
		{goName: "Opcode", path: "opcode"},
		{goName: "SendFlags", path: "send_flags"},
		{goName: "Imm", path: "imm_data"},
		{goName: "RemoteAddr", path: "wr.rdma.remote_addr"},
		{goName: "RKey", path: "wr.rdma.rkey"},
	}},
	{goName: "RecvWR", c: "ibv_recv_wr", fields: []field{
		{goName: "WRID", path: "wr_id"},
		{goName: "Next", path: "next"},
		{goName: "SGList", path: "sg_list"},
		{goName: "NumSGE", path: "num_sge"},
	}},
	{goName: "WC", c: "ibv_wc", fields: []field{
		{goName: "WRID", path: "wr_id"},
		{goName: "Status", path: "status"},
		{goName: "Opcode", path: "opcode"},
		{goName: "VendorErr", path: "vendor_err"},
		{goName: "ByteLen", path: "byte_len"},
		{goName: "Imm", path: "imm_data"},
		{goName: "QPNum", path: "qp_num"},
		{goName: "WCFlags", path: "wc_flags"},
	}},

	// Queue pairs and their addresses.
	{goName: "GlobalRoute", c: "ibv_global_route", fields: []field{
		{goName: "DGID", path: "dgid"},
		{goName: "SGIDIndex", path: "sgid_index"},
		{goName: "HopLimit", path: "hop_limit"},
		{goName: "TrafficClass", path: "traffic_class"},
	}},
	{goName: "AHAttr", c: "ibv_ah_attr", fields: []field{
		{goName: "GRH", path: "grh"},
		{goName: "DLID", path: "dlid"},
		{goName: "SL", path: "sl"},
		{goName: "IsGlobal", path: "is_global"},
		{goName: "PortNum", path: "port_num"},
	}},
	{goName: "QPCap", c: "ibv_qp_cap", fields: []field{
		{goName: "MaxSendWR", path: "max_send_wr"},
		{goName: "MaxRecvWR", path: "max_recv_wr"},
		{goName: "MaxSendSGE", path: "max_send_sge"},
		{goName: "MaxRecvSGE", path: "max_recv_sge"},
		{goName: "MaxInlineData", path: "max_inline_data"},
	}},
	{goName: "QPAttr", c: "ibv_qp_attr", fields: []field{
		{goName: "QPState", path: "qp_state"},
		{goName: "PathMTU", path: "path_mtu"},
		{goName: "RQPSN", path: "rq_psn"},
		{goName: "SQPSN", path: "sq_psn"},
		{goName: "DestQPNum", path: "dest_qp_num"},
		{goName: "QPAccessFlags", path: "qp_access_flags"},
		{goName: "AHAttr", path: "ah_attr"},
		{goName: "PkeyIndex", path: "pkey_index"},
		{goName: "MaxRdAtomic", path: "max_rd_atomic"},
		{goName: "MaxDestRdAtomic", path: "max_dest_rd_atomic"},
		{goName: "MinRnrTimer", path: "min_rnr_timer"},
		{goName: "PortNum", path: "port_num"},
		{goName: "Timeout", path: "timeout"},
		{goName: "RetryCnt", path: "retry_cnt"},
		{goName: "RnrRetry", path: "rnr_retry"},
	}},
	{goName: "qpInitAttr", c: "ibv_qp_init_attr", fields: []field{
		{goName: "sendCQ", path: "send_cq"},
		{goName: "recvCQ", path: "recv_cq"},
		{goName: "cap", path: "cap"},
		{goName: "qpType", path: "qp_type"},
		{goName: "sqSigAll", path: "sq_sig_all"},
	}},
	{goName: "ECE", c: "ibv_ece", fields: []field{
		{goName: "VendorID", path: "vendor_id"},
		{goName: "Options", path: "options"},
		{goName: "CompMask", path: "comp_mask"},
	}},

	// Devices and ports.
	{goName: "DeviceAttr", c: "ibv_device_attr", fields: []field{
		{goName: "MaxQPWR", path: "max_qp_wr"},
		{goName: "MaxCQE", path: "max_cqe"},
		{goName: "MaxQPRdAtom", path: "max_qp_rd_atom"},
		{goName: "MaxQPInitRdAtom", path: "max_qp_init_rd_atom"},
		{goName: "PhysPortCnt", path: "phys_port_cnt"},
	}},
	{goName: "PortAttr", c: "ibv_port_attr", room: 128, fields: []field{
		{goName: "State", path: "state"},
		{goName: "ActiveMTU", path: "active_mtu"},
		{goName: "MaxMsgSz", path: "max_msg_sz"},
		{goName: "LID", path: "lid"},
		{goName: "ActiveWidth", path: "active_width"},
		{goName: "ActiveSpeed", path: "active_speed"},
		{goName: "LinkLayer", path: "link_layer"},
		{goName: "ActiveSpeedEx", path: "active_speed_ex", later: &member{Offset: 52, Size: 4, Align: 4, Type: "u32"}},
	}},

	// Objects that the library owns; read only.
	{goName: "cContext", c: "ibv_context", fields: []field{
		{goName: "pollCQ", path: "ops.poll_cq"},
		{goName: "reqNotifyCQ", path: "ops.req_notify_cq"},
		{goName: "postSend", path: "ops.post_send"},
		{goName: "postRecv", path: "ops.post_recv"},
		{goName: "cmdFD", path: "cmd_fd"},
		{goName: "asyncFD", path: "async_fd"},
		{goName: "abiCompat", path: "abi_compat"},
	}},
	{goName: "cMR", c: "ibv_mr", fields: []field{
		{goName: "lkey", path: "lkey"},
		{goName: "rkey", path: "rkey"},
	}},
	{goName: "cQP", c: "ibv_qp", fields: []field{
		{goName: "qpNum", path: "qp_num"},
	}},
	{goName: "cCompChannel", c: "ibv_comp_channel", fields: []field{
		{goName: "fd", path: "fd"},
	}},
	{goName: "asyncEvent", c: "ibv_async_event", fields: []field{
		{goName: "element", path: "element.qp"},
		{goName: "eventType", path: "event_type"},
	}},
}

// The verbs_context lies in front of the ibv_context in memory and grows towards lower addresses.
var anchors = []anchor{
	{goName: "verbsQueryPort", c: "verbs_context", path: "query_port", from: "context"},
	{goName: "verbsSize", c: "verbs_context", path: "sz", from: "context"},
}

var constantGroups = []constants{
	{comment: "enum ibv_gid_type", list: []string{"IBV_GID_TYPE_ROCE_V1", "IBV_GID_TYPE_ROCE_V2"}},
	{comment: "enum ibv_mtu", list: []string{"IBV_MTU_256", "IBV_MTU_1024", "IBV_MTU_4096"}},
	{comment: "enum ibv_port_state", list: []string{
		"IBV_PORT_DOWN", "IBV_PORT_ACTIVE"}},
	{comment: "Link layers of a port", list: []string{
		"IBV_LINK_LAYER_INFINIBAND", "IBV_LINK_LAYER_ETHERNET"}},
	{comment: "enum ibv_access_flags", list: []string{
		"IBV_ACCESS_LOCAL_WRITE", "IBV_ACCESS_REMOTE_WRITE", "IBV_ACCESS_REMOTE_READ", "IBV_ACCESS_REMOTE_ATOMIC",
		"IBV_ACCESS_RELAXED_ORDERING", "IBV_ACCESS_OPTIONAL_RANGE"}},
	{comment: "enum ibv_qp_type", list: []string{"IBV_QPT_RC", "IBV_QPT_UD"}},
	{comment: "enum ibv_qp_state", names: "qpStateNames", list: []string{
		"IBV_QPS_RESET", "IBV_QPS_INIT", "IBV_QPS_RTR", "IBV_QPS_RTS", "IBV_QPS_SQD", "IBV_QPS_SQE", "IBV_QPS_ERR"}},
	{comment: "enum ibv_qp_attr_mask", names: "qpAttrNames", list: []string{
		"IBV_QP_STATE", "IBV_QP_CUR_STATE", "IBV_QP_EN_SQD_ASYNC_NOTIFY", "IBV_QP_ACCESS_FLAGS", "IBV_QP_PKEY_INDEX",
		"IBV_QP_PORT", "IBV_QP_QKEY", "IBV_QP_AV", "IBV_QP_PATH_MTU", "IBV_QP_TIMEOUT", "IBV_QP_RETRY_CNT",
		"IBV_QP_RNR_RETRY", "IBV_QP_RQ_PSN", "IBV_QP_MAX_QP_RD_ATOMIC", "IBV_QP_ALT_PATH", "IBV_QP_MIN_RNR_TIMER",
		"IBV_QP_SQ_PSN", "IBV_QP_MAX_DEST_RD_ATOMIC", "IBV_QP_PATH_MIG_STATE", "IBV_QP_CAP", "IBV_QP_DEST_QPN",
		"IBV_QP_RATE_LIMIT"}},
	{comment: "enum ibv_wr_opcode", list: []string{
		"IBV_WR_RDMA_WRITE", "IBV_WR_RDMA_WRITE_WITH_IMM", "IBV_WR_SEND", "IBV_WR_SEND_WITH_IMM", "IBV_WR_RDMA_READ"}},
	{comment: "enum ibv_send_flags", list: []string{
		"IBV_SEND_FENCE", "IBV_SEND_SIGNALED", "IBV_SEND_SOLICITED", "IBV_SEND_INLINE"}},
	{comment: "enum ibv_wc_opcode", list: []string{
		"IBV_WC_SEND", "IBV_WC_RDMA_WRITE", "IBV_WC_RDMA_READ", "IBV_WC_RECV", "IBV_WC_RECV_RDMA_WITH_IMM"}},
	{comment: "enum ibv_wc_flags", list: []string{"IBV_WC_WITH_IMM"}},
	{comment: "enum ibv_wc_status", names: "wcStatusNames", list: []string{
		"IBV_WC_SUCCESS", "IBV_WC_LOC_LEN_ERR", "IBV_WC_LOC_QP_OP_ERR", "IBV_WC_LOC_EEC_OP_ERR", "IBV_WC_LOC_PROT_ERR",
		"IBV_WC_WR_FLUSH_ERR", "IBV_WC_MW_BIND_ERR", "IBV_WC_BAD_RESP_ERR", "IBV_WC_LOC_ACCESS_ERR",
		"IBV_WC_REM_INV_REQ_ERR", "IBV_WC_REM_ACCESS_ERR", "IBV_WC_REM_OP_ERR", "IBV_WC_RETRY_EXC_ERR",
		"IBV_WC_RNR_RETRY_EXC_ERR", "IBV_WC_LOC_RDD_VIOL_ERR", "IBV_WC_REM_INV_RD_REQ_ERR", "IBV_WC_REM_ABORT_ERR",
		"IBV_WC_INV_EECN_ERR", "IBV_WC_INV_EEC_STATE_ERR", "IBV_WC_FATAL_ERR", "IBV_WC_RESP_TIMEOUT_ERR",
		"IBV_WC_GENERAL_ERR", "IBV_WC_TM_ERR", "IBV_WC_TM_RNDV_INCOMPLETE"}},
	{comment: "enum ibv_event_type", names: "eventNames", list: []string{
		"IBV_EVENT_CQ_ERR", "IBV_EVENT_QP_FATAL", "IBV_EVENT_QP_REQ_ERR", "IBV_EVENT_QP_ACCESS_ERR", "IBV_EVENT_COMM_EST",
		"IBV_EVENT_SQ_DRAINED", "IBV_EVENT_PATH_MIG", "IBV_EVENT_PATH_MIG_ERR", "IBV_EVENT_DEVICE_FATAL",
		"IBV_EVENT_PORT_ACTIVE", "IBV_EVENT_PORT_ERR", "IBV_EVENT_LID_CHANGE", "IBV_EVENT_PKEY_CHANGE",
		"IBV_EVENT_SM_CHANGE", "IBV_EVENT_SRQ_ERR", "IBV_EVENT_SRQ_LIMIT_REACHED", "IBV_EVENT_QP_LAST_WQE_REACHED",
		"IBV_EVENT_CLIENT_REREGISTER", "IBV_EVENT_GID_CHANGE", "IBV_EVENT_WQ_FATAL"}},
}
