from micdrop_agent import (Message,ToolCall,ToolResult,MessageAdded,UserMessageCancelled,AnswerSkipped,EndCallRequested,ToolCalled,AnswerFailed)
def dump(items):
    out=[]
    for i in items:
        if isinstance(i,Message):
            d={"role":i.role,"content":i.content}
            if i.metadata is not None: d["metadata"]=dict(i.metadata)
        elif isinstance(i,ToolCall): d={"role":"tool_call","toolCallId":i.tool_call_id,"toolName":i.tool_name,"parameters":i.parameters}
        else: d={"role":"tool_result","toolCallId":i.tool_call_id,"toolName":i.tool_name,"output":i.output}
        out.append(d)
    return out
def load(data):
    out=[]
    for d in data:
        if d["role"]=="tool_call": out.append(ToolCall(d["toolCallId"],d["toolName"],d["parameters"]))
        elif d["role"]=="tool_result": out.append(ToolResult(d["toolCallId"],d["toolName"],d["output"]))
        else: out.append(Message(d["role"],d["content"],d.get("metadata")))
    return out
def dump_event(e):
    if isinstance(e,MessageAdded): return {"event":"Message","payload":dump([e.message])[0]}
    if isinstance(e,UserMessageCancelled): return {"event":"CancelLastUserMessage"}
    if isinstance(e,AnswerSkipped): return {"event":"SkipAnswer"}
    if isinstance(e,EndCallRequested): return {"event":"EndCall"}
    if isinstance(e,ToolCalled): return {"event":"ToolCall","payload":{"name":e.name,"parameters":e.parameters,"output":e.output}}
    if isinstance(e,AnswerFailed): return {"event":"Failed"}
    return None
